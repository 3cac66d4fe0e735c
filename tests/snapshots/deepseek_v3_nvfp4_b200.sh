unset SGLANG_PLUGINS SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION SGLANG_SIMULATE_ACC_LEN
export SPEC_TOOLKIT_PATCHES=/state/patches.json
export SPEC_TOOLKIT_RANKS_AFTER_DRAFT_FAULT=vote
export SGLANG_CUDA_COREDUMP_BEFORE_CRASH=0
export SGLANG_PYSPY_DUMP_BEFORE_CRASH=0
export PYTHONUNBUFFERED=1
python3 -m sglang.launch_server \
  --model-path /models/target \
  --revision 0000000000000000000000000000000000000000 \
  --served-model-name nvidia/DeepSeek-V3-0324-NVFP4 \
  --tp-size 8 \
  --context-length 65536 \
  --max-running-requests 64 \
  --cuda-graph-bs-decode 1 2 3 4 5 6 7 8 10 12 14 16 18 20 22 24 26 28 30 32 40 44 48 52 56 60 64 \
  --host 127.0.0.1 \
  --port 30000 \
  --enable-metrics \
  --watchdog-timeout 60.0 \
  --config /state/engine.yaml \
  --speculative-algorithm EAGLE \
  --speculative-num-steps 3 \
  --speculative-eagle-topk 1 \
  --speculative-num-draft-tokens 4 \
  --speculative-adaptive \
  --speculative-adaptive-config /state/steps.json \
  --speculative-moe-runner-backend triton \
  --speculative-moe-a2a-backend none

# and without speculation
unset SGLANG_PLUGINS SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION SGLANG_SIMULATE_ACC_LEN
export SPEC_TOOLKIT_PATCHES=/state/patches.json
export SPEC_TOOLKIT_RANKS_AFTER_DRAFT_FAULT=vote
export SGLANG_CUDA_COREDUMP_BEFORE_CRASH=0
export SGLANG_PYSPY_DUMP_BEFORE_CRASH=0
export PYTHONUNBUFFERED=1
python3 -m sglang.launch_server \
  --model-path /models/target \
  --revision 0000000000000000000000000000000000000000 \
  --served-model-name nvidia/DeepSeek-V3-0324-NVFP4 \
  --tp-size 8 \
  --context-length 65536 \
  --max-running-requests 64 \
  --cuda-graph-bs-decode 1 2 3 4 5 6 7 8 10 12 14 16 18 20 22 24 26 28 30 32 40 44 48 52 56 60 64 \
  --host 127.0.0.1 \
  --port 30000 \
  --enable-metrics \
  --watchdog-timeout 60.0 \
  --config /state/engine.yaml
