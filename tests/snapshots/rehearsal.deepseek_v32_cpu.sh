unset SGLANG_PLUGINS SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION SGLANG_SIMULATE_ACC_LEN
export SPEC_TOOLKIT_PATCHES=/state/patches.json
export SPEC_TOOLKIT_RANKS_AFTER_DRAFT_FAULT=vote
export SGLANG_CUDA_COREDUMP_BEFORE_CRASH=0
export SGLANG_PYSPY_DUMP_BEFORE_CRASH=0
export PYTHONUNBUFFERED=1
export SGLANG_USE_CPU_ENGINE=1
export PYTHONPATH=/toolkit/rehearsal/path
export TORCHDYNAMO_DISABLE=1
export OMP_NUM_THREADS=1
python3 /toolkit/rehearsal/serve.py \
  --model-path /models/target \
  --revision 0000000000000000000000000000000000000000 \
  --served-model-name deepseek_v32_tiny \
  --dtype float32 \
  --tp-size 1 \
  --context-length 4096 \
  --max-running-requests 16 \
  --max-total-tokens 16384 \
  --attention-backend intel_amx \
  --host 127.0.0.1 \
  --port 30000 \
  --enable-metrics \
  --watchdog-timeout 20.0 \
  --config /state/engine.yaml \
  --sleep-on-idle \
  --device cpu \
  --cuda-graph-backend-decode disabled \
  --cuda-graph-backend-prefill disabled \
  --skip-server-warmup \
  --speculative-algorithm EAGLE \
  --speculative-num-steps 3 \
  --speculative-eagle-topk 1 \
  --speculative-num-draft-tokens 4 \
  --speculative-adaptive \
  --speculative-adaptive-config /state/steps.json

# and without speculation
unset SGLANG_PLUGINS SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION SGLANG_SIMULATE_ACC_LEN
export SPEC_TOOLKIT_PATCHES=/state/patches.json
export SPEC_TOOLKIT_RANKS_AFTER_DRAFT_FAULT=vote
export SGLANG_CUDA_COREDUMP_BEFORE_CRASH=0
export SGLANG_PYSPY_DUMP_BEFORE_CRASH=0
export PYTHONUNBUFFERED=1
export SGLANG_USE_CPU_ENGINE=1
export PYTHONPATH=/toolkit/rehearsal/path
export TORCHDYNAMO_DISABLE=1
export OMP_NUM_THREADS=1
python3 /toolkit/rehearsal/serve.py \
  --model-path /models/target \
  --revision 0000000000000000000000000000000000000000 \
  --served-model-name deepseek_v32_tiny \
  --dtype float32 \
  --tp-size 1 \
  --context-length 4096 \
  --max-running-requests 16 \
  --max-total-tokens 16384 \
  --attention-backend intel_amx \
  --host 127.0.0.1 \
  --port 30000 \
  --enable-metrics \
  --watchdog-timeout 20.0 \
  --config /state/engine.yaml \
  --sleep-on-idle \
  --device cpu \
  --cuda-graph-backend-decode disabled \
  --cuda-graph-backend-prefill disabled \
  --skip-server-warmup
