#!/usr/bin/env bash
# For make: llmc/base/precompiled.h, precompiled as FOLDER/std.h.gch by COMMAND, unless it is there. What is
# compiled by the same flags includes FOLDER/std.h.
#
#     dev/precompile.sh FOLDER COMMAND ...
set -e
folder=$1 header=llmc/base/precompiled.h
shift
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9                         # the first of several compilers makes it, the others wait
if [[ ! $folder/std.h.gch -nt $header ]]; then
    echo "#include \"$header\"" >"$folder/std.h"
    "$@" -I. -x c++-header "$folder/std.h" -o "$folder/std.h.new"
    mv "$folder/std.h.new" "$folder/std.h.gch"
fi
