squeue -a --format=%i|%F|%K|%A|%j|%u|%U|%g|%G|%a|%P|%q|%T|%t|%r|%R|%p|%Q|%y|%l|%L|%M|%S|%V|%e|%D|%C|%m|%d|%c|%b|%f|%h|%H|%I|%J|%k|%n|%N|%o|%O|%v|%w|%W|%x|%X|%Y|%z|%Z|%B|%E
