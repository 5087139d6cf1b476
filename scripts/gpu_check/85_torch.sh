#!/usr/bin/env bash
# what: torch's attention and products, to compare with
# limit: 25
python=${PYTHON:-python3}
"$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
    { echo "no torch with CUDA for $python"; exit 77; }
exec "$python" scripts/gpu_check/torch_anchors.py
