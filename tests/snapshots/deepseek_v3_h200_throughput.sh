unset SGLANG_PLUGINS SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION SGLANG_SIMULATE_ACC_LEN
export SPEC_TOOLKIT_PATCHES=/state/patches.json
export SPEC_TOOLKIT_RANKS_AFTER_DRAFT_FAULT=vote
export SGLANG_CUDA_COREDUMP_BEFORE_CRASH=0
export SGLANG_PYSPY_DUMP_BEFORE_CRASH=0
export PYTHONUNBUFFERED=1
python3 -m sglang.launch_server \
  --model-path /models/target \
  --revision 0000000000000000000000000000000000000000 \
  --served-model-name deepseek-ai/DeepSeek-V3-0324 \
  --tp-size 8 \
  --dp-size 8 \
  --enable-dp-attention \
  --context-length 32768 \
  --max-running-requests 256 \
  --mem-fraction-static 0.85 \
  --chunked-prefill-size 32768 \
  --cuda-graph-bs-decode 1 2 3 4 5 6 7 8 10 12 14 16 18 20 22 24 26 28 30 32 \
  --host 127.0.0.1 \
  --port 30000 \
  --enable-metrics \
  --watchdog-timeout 60.0 \
  --config /state/engine.yaml \
  --speculative-algorithm EAGLE \
  --speculative-num-steps 1 \
  --speculative-eagle-topk 1 \
  --speculative-num-draft-tokens 2 \
  --speculative-adaptive \
  --speculative-adaptive-config /state/steps.json

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
  --served-model-name deepseek-ai/DeepSeek-V3-0324 \
  --tp-size 8 \
  --dp-size 8 \
  --enable-dp-attention \
  --context-length 32768 \
  --max-running-requests 256 \
  --mem-fraction-static 0.85 \
  --chunked-prefill-size 32768 \
  --cuda-graph-bs-decode 1 2 3 4 5 6 7 8 10 12 14 16 18 20 22 24 26 28 30 32 \
  --host 127.0.0.1 \
  --port 30000 \
  --enable-metrics \
  --watchdog-timeout 60.0 \
  --config /state/engine.yaml
