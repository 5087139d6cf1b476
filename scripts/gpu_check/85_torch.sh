#!/usr/bin/env bash
# what: torch's attention and products, to compare with; with --lease steps of three models by torch.compile
# limit: 25
# lease: 80 70
python=${PYTHON:-python3}
"$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
    { echo "no torch with CUDA for $python"; exit 77; }
if [ "${LEASE:-0}" = 0 ]; then exec "$python" scripts/gpu_check/torch_anchors.py; fi
TORCHINDUCTOR_CACHE_DIR=$WORK/inductor exec "$python" scripts/gpu_check/torch_models.py gpt2_124M:524288 \
    smollm2_135M:262144 qwen3_0.6B:131072
