#!/bin/bash
# PyTorch (Debian's CPU build, with gloo), PyTorch Lightning and Ray for the tests of real programs, in .venv/torch.
set -eu
cd "$(dirname "$0")/.."
folder=.venv/torch
skip() { echo "$1: the tests of torchrun, Lightning and Ray are skipped" >&2; exit 0; }

[ -e $folder/.installed ] && exit 0
if ! /usr/bin/python3 -c 'import torch.distributed, venv, ensurepip' 2>/dev/null; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || skip "python3-torch is not installed (needs root and apt-get)"
    echo "installing python3-torch python3-venv"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-torch python3-venv; } >/dev/null 2>&1 ||
        skip "python3-torch cannot be installed"
fi
/usr/bin/python3 -m venv --system-site-packages $folder
echo 'torch==1.13.0a0' >$folder/constraints   # what Debian calls its 1.13.1: nothing may bring another one
$folder/bin/pip install --quiet --disable-pip-version-check -c $folder/constraints \
    pytorch-lightning==2.1.4 'ray>=2.9,<3' 'setuptools<81' || skip "PyTorch Lightning and Ray cannot be installed"

# torch 1.13 is older than Python 3.11: an enum's zero has no name for it, and sharded tensors cannot be imported.
site=$($folder/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
sed -i '/"1.13.0"/s/"1.13.0")/"1.13.0", use_base_version=True)/' "$site/lightning_fabric/utilities/imports.py"
sed -i '/_sharded_tensor_state_dict_hooks_if_available(self)/,/deprecated/s/if _TORCH_GREATER_EQUAL_2_1:/if True:/' \
    "$site/pytorch_lightning/core/module.py"
cat >$folder/bin/torchrun <<END
#!$PWD/$folder/bin/python
import torch.distributed.run as torchrun
torchrun.Std.from_str = classmethod(lambda cls, text: cls(int(text)))
torchrun.main()
END
chmod +x $folder/bin/torchrun
touch $folder/.installed
