unset SGLANG_PLUGINS SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION SGLANG_SIMULATE_ACC_LEN
export SPEC_TOOLKIT_PATCHES=/state/patches.json
export SPEC_TOOLKIT_RANKS_AFTER_DRAFT_FAULT=vote
export SGLANG_CUDA_COREDUMP_BEFORE_CRASH=0
export SGLANG_PYSPY_DUMP_BEFORE_CRASH=0
export PYTHONUNBUFFERED=1
python3 -m sglang.launch_server \
  --model-path /models/target \
  --revision 0000000000000000000000000000000000000000 \
  --served-model-name nvidia/GLM-5.2-NVFP4 \
  --tp-size 8 \
  --context-length 1048576 \
  --max-running-requests 2 \
  --mem-fraction-static 0.85 \
  --chunked-prefill-size 8192 \
  --cuda-graph-bs-decode 1 2 \
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
  --served-model-name nvidia/GLM-5.2-NVFP4 \
  --tp-size 8 \
  --context-length 1048576 \
  --max-running-requests 2 \
  --mem-fraction-static 0.85 \
  --chunked-prefill-size 8192 \
  --cuda-graph-bs-decode 1 2 \
  --host 127.0.0.1 \
  --port 30000 \
  --enable-metrics \
  --watchdog-timeout 60.0 \
  --config /state/engine.yaml
