#!/bin/sh
# Makes the files of the test `what_dwz_moved_is_found`: a program's debug file as it was linked (whole), after `dwz`
# (single), and with its common parts moved into another file, by GNU's link (linked, shared) and by that of
# DWARF 5 (linked5, shared5). gcc 12.2, dwz 0.15.
set -e
cc="gcc -O2 -g -ffile-prefix-map=$PWD=/w"
for name in first second; do $cc -DNAME=$name -c sum.c -o $name.o; done
$cc -c main.c -o main.o
gcc -Wl,--build-id main.o first.o second.o -o program
objcopy --only-keep-debug program whole.debug
for name in single a b a5 b5; do cp whole.debug $name; done
dwz single
dwz -m shared.debug a b
dwz --dwarf-5 -m shared5.debug a5 b5
mv single single.debug
mv a linked.debug
mv a5 linked5.debug
rm -f b b5 *.o program
