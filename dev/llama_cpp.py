#!/usr/bin/python3
"""Greedy texts by llama.cpp, of PyPI's xllamacpp, all in FP32: dev/llama_cpp.py GGUF TOKENS PROMPT ...

The last line is the texts as JSON; the library prints before.
"""
from show_help import show_help

if __name__ == "__main__":
    show_help(__doc__)          # the packages may not be there

import json
import os
import sys

import xllamacpp as x


def main(path, tokens, prompts):
    p = x.CommonParams()
    p.model.path, p.n_ctx, p.n_parallel, p.verbosity = path, 256, 1, -1
    p.cpuparams.n_threads = len(os.sched_getaffinity(0))
    p.cache_type_k = p.cache_type_v = x.ggml_type.GGML_TYPE_F32
    p.flash_attn_type = x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server, texts = x.Server(p), []
    for prompt in prompts:
        said = server.handle_completions({"prompt": prompt, "max_tokens": tokens, "temperature": 0})
        said = said if isinstance(said, dict) else json.loads(said)
        texts.append(said["choices"][0]["text"])
    print()
    print(json.dumps(texts))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
