"""placeholder"""
from __future__ import annotations
class Sessions:
    def __init__(self, daemon): self.ever_attached=False
    idle=True
    def keeper_pids(self): return set()
    async def end_all(self, g): pass
    async def gone(self): pass
    def announce_end(self, c): pass
    def signal_all(self, n): pass
    def signal_step(self, s, n): return False
    async def keep_step(self,*a): pass
    async def serve_client(self,*a): pass
