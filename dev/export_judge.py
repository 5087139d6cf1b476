"""Exports against other programs: GGUF files of small models against llama.cpp, of each type of element; a
folder of several files against transformers; a published chat template against its text by Jinja.

Checks of dev/smollm2_judge.py.
"""
import os

from judging import run, write_json
from small_models import NEW, check_texts, decoded, greedy, ids_of, llama_cpp, train_small

# name: pattern of the tokenizer, settings of the model, whether a text begins with BOS
KINDS = {
    "Qwen3": ("qwen2", {"qk_norm": "before"}, False),
    "Qwen2": ("qwen2", {"qkv_bias": True}, False),
    "Llama with scaled positions and BOS": (
        "llama3",
        {"rope_scaling": {"type": "llama3", "factor": 4, "low": 1, "high": 4, "context": 64}}, True),
}
PROMPTS = ["A checkpoint is", "The model", "Every kernel ", "It", "a file of", "## ", "The GPU", "tokens"]
# llama.cpp rounds activations beside rounded weights: a token is compared if its logit leads by as much.
LEAD = 0.03
LEAST = 32          # tokens to compare, over all texts


def first_ids(number, bos):
    """The ids before a text: the token that add_bos() put behind the others."""
    return [number] if bos else []


def held(options, path, prompt, text, before):
    """The beginning of a greedy text whose every token leads, and its number of tokens."""
    import numpy as np
    start = len(ids_of(path, prompt, options.folder))
    ids = ids_of(path, prompt + text, options.folder)
    place = os.path.join(options.folder, "ids.bin")
    np.array(before + ids, dtype=np.int32).tofile(place)
    run(os.path.join(options.build, "dev/logits"), f"gguf:{path}", place, place + ".logits")
    logits = np.fromfile(place + ".logits", dtype=np.float32).reshape(len(before) + len(ids), -1)
    n = start
    while n < len(ids):
        row = logits[len(before) + n - 1]
        second, first = np.sort(row)[-2:]
        if row.argmax() != ids[n] or first - second < LEAD:
            break
        n += 1
    whole = decoded(path, ids[:n], options.folder).removesuffix("\n")
    return whole[len(prompt):], n - start


def check_rounded(count, what, options, path, before):
    """llama.cpp rounds activations too: its texts are ours as far as the lead of each token is clear."""
    empty = write_json(os.path.join(options.folder, "empty.json"), {})
    here = [f"--model.init=gguf:{path}", f"--run.dir={options.folder}/none"]
    own = [held(options, path, p, greedy(empty, p, *here), before) for p in PROMPTS]
    theirs = llama_cpp(path, PROMPTS)
    wrong = [(a, b) for (a, _), b in zip(own, theirs, strict=True) if not b.startswith(a.rstrip("\ufffd"))]
    tokens = sum(n for _, n in own)
    count.check(what, not wrong and tokens >= LEAST,
                f"{tokens} of {NEW * len(own)} tokens lead by {LEAD}{': ' if wrong else ''}{wrong or ''}")


def check_gguf(count, options):
    for i, (name, (pattern, model, bos)) in enumerate(KINDS.items()):
        config = train_small(options.folder, f"small{i}", pattern, model, bos)
        exported = os.path.join(options.folder, "small{}.gguf")
        plain = exported.format("")
        run("./train_gpt", config, f"--export=gguf:{plain}")
        own = [greedy(config, prompt) for prompt in PROMPTS]
        check_texts(count, f"a small {name}, exported to GGUF, by llama.cpp", own, llama_cpp(plain, PROMPTS))
        for kind in ["bf16", "q8_0"]:
            path = exported.format(f"-{kind}")
            run("./train_gpt", config, f"--export=gguf:{path}")
            check_rounded(count, f"the same in {kind.upper()}", options, path, first_ids(512, bos))
            os.remove(path)
        os.remove(plain)


def check_folder(count, options, path, model):
    """Hugging Face's form in several files, with their index, loads in transformers to the same weights."""
    import shutil
    from transformers import LlamaForCausalLM
    folder = os.path.join(options.folder, "several")
    shutil.rmtree(folder, ignore_errors=True)
    run(os.path.join(options.build, "dev/logits"), f"gguf:{path}", "--files=150000000", folder)
    files = [name for name in os.listdir(folder) if name.endswith(".safetensors")]
    theirs = LlamaForCausalLM.from_pretrained(folder, dtype="float32").state_dict()
    own = model.state_dict()
    apart = [name for name in own if not theirs[name].equal(own[name])]
    shutil.rmtree(folder)
    count.check("SmolLM2-135M, exported in several files, by transformers",
                len(files) > 2 and len(theirs) == len(own) and not apart,
                f"{len(own)} tensors of {len(files)} files, {len(apart)} with other values: {apart[:3]}")


def check_chat(count, options, path, model, greedy_judge):
    """The answer to a message is that to the text which Jinja makes of the file's chat template."""
    import re
    import jinja2
    from gguf import GGUFReader
    reader = GGUFReader(path)
    of = lambda key: reader.fields["tokenizer." + key].contents()
    tokens, message = of("ggml.tokens"), "Why is the sky blue?"
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(of("chat_template"))
    text = template.render(messages=[{"role": "user", "content": message}], add_generation_prompt=True)
    ids = []
    for part in re.split(r"(<\|im_start\|>|<\|im_end\|>)", text):
        ids += [tokens.index(part)] if part.startswith("<|im_") else ids_of(path, part, options.folder)
    said, lead = greedy_judge(model, ids)
    end = tokens.index("<|im_end|>")
    said = said[:said.index(end)] if end in said else said
    empty = write_json(os.path.join(options.folder, "empty.json"), {})
    own = greedy(empty, message, f"--model.init=gguf:{path}", f"--run.dir={options.folder}/none",
                 "--model.context=256", chat=True)
    check_texts(count, "SmolLM2-135M, answer by its chat template", [own],
                [decoded(path, said, options.folder)], f", a lead of {lead:.3f} or more")


def check_exports(count, options, path, model, greedy_judge):
    check_chat(count, options, path, model, greedy_judge)
    check_folder(count, options, path, model)
    check_gguf(count, options)
