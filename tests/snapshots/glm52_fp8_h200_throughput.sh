unset SGLANG_PLUGINS SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION SGLANG_SIMULATE_ACC_LEN
export SPEC_TOOLKIT_PATCHES=/state/patches.json
export SPEC_TOOLKIT_RANKS_AFTER_DRAFT_FAULT=vote
export SGLANG_CUDA_COREDUMP_BEFORE_CRASH=0
export SGLANG_PYSPY_DUMP_BEFORE_CRASH=0
export PYTHONUNBUFFERED=1
python3 -m sglang.launch_server \
  --model-path /models/target \
  --revision 0000000000000000000000000000000000000000 \
  --served-model-name zai-org/GLM-5.2-FP8 \
  --tp-size 8 \
  --dp-size 8 \
  --enable-dp-attention \
  --moe-a2a-backend deepep \
  --context-length 32768 \
  --max-running-requests 256 \
  --mem-fraction-static 0.85 \
  --chunked-prefill-size 32768 \
  --cuda-graph-bs-decode 1 2 4 8 12 16 24 32 \
  --host 127.0.0.1 \
  --port 30000 \
  --enable-metrics \
  --watchdog-timeout 60.0 \
  --config /state/engine.yaml

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
  --served-model-name zai-org/GLM-5.2-FP8 \
  --tp-size 8 \
  --dp-size 8 \
  --enable-dp-attention \
  --moe-a2a-backend deepep \
  --context-length 32768 \
  --max-running-requests 256 \
  --mem-fraction-static 0.85 \
  --chunked-prefill-size 32768 \
  --cuda-graph-bs-decode 1 2 4 8 12 16 24 32 \
  --host 127.0.0.1 \
  --port 30000 \
  --enable-metrics \
  --watchdog-timeout 60.0 \
  --config /state/engine.yaml
