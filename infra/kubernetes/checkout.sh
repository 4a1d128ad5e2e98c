#!/bin/sh
# Checks out a job's revision before its command starts. A git host that does not answer is waited for with
# longer and longer pauses; after GPU_SPOT_OUTAGE_SECONDS the pod ends with 75, which is not counted, so its node
# is not paid for. Whatever else fails is counted: a revision or repository that is not there, a full disk.
# The Job controller counts failures of a pod's index (GPU_SPOT_FAULTS); those beyond GPU_SPOT_MAX_RESTARTS end
# the Job, whatever they were.
outage_exit_code=75
exhausted_exit_code=78
longest_delay_seconds=60
export LC_ALL=C
trap 'exit 75' TERM

clock() {
  read -r now _ </proc/uptime
  now=${now%%.*}
}

# A transfer below 1 kB/s for a minute ends: git waits for ever by itself (git-config, http.lowSpeedTime).
fetch() {
  git init --quiet . &&
    git -c http.lowSpeedLimit=1000 -c http.lowSpeedTime=60 \
      fetch --quiet --depth 1 "$GPU_SPOT_REPOSITORY" "$GPU_SPOT_REVISION" &&
    git -c advice.detachedHead=false checkout --quiet --force FETCH_HEAD &&
    if [ -n "$GPU_SPOT_SUBMODULES" ]; then
      git -c http.lowSpeedLimit=1000 -c http.lowSpeedTime=60 \
        submodule --quiet update --init --recursive --depth 1
    fi
}

# What git, curl and ssh say where a host or the way to it is at fault.
is_outage() {
  case $1 in
    *"Could not resolve"* | *"emporary failure in name resolution"* | *"Failed to connect"*) ;;
    *"Couldn't connect"* | *"Could not connect"* | *"onnection refused"* | *"onnection reset"*) ;;
    *"onnection timed out"* | *"peration timed out"* | *"peration too slow"* | *"Network is unreachable"*) ;;
    *"No route to host"* | *"early EOF"* | *"unexpected disconnect"* | *"hung up unexpectedly"*) ;;
    *"Empty reply from server"* | *"RPC failed"* | *"returned error: 5"* | *"returned error: 429"*) ;;
    *"SSL_ERROR_SYSCALL"* | *"GnuTLS recv error"* | *"onnection closed by"* | *"Broken pipe"*) ;;
    *) return 1 ;;
  esac
}

fail() {
  if [ -n "$GPU_SPOT_FAULTS" ] && [ "$GPU_SPOT_FAULTS" -ge "$GPU_SPOT_MAX_RESTARTS" ]; then
    echo "gpu-spot: the job has failed after $GPU_SPOT_FAULTS restarts, more than maxRestarts ($GPU_SPOT_MAX_RESTARTS)" >&2
    exit "$exhausted_exit_code"
  fi
  exit 1
}

if [ -n "$GPU_SPOT_FAULTS" ] && [ "$GPU_SPOT_FAULTS" -gt "$GPU_SPOT_MAX_RESTARTS" ]; then fail; fi
mkdir -p "$HOME" "$TMPDIR" "$GPU_SPOT_CODE" || fail
cd "$GPU_SPOT_CODE" || fail
clock
end=$((now + GPU_SPOT_OUTAGE_SECONDS))
delay=${GPU_SPOT_OUTAGE_DELAY:-5}
until errors=$(fetch 2>&1); do
  echo "$errors" >&2
  is_outage "$errors" || fail
  clock
  if [ $((now + delay)) -gt "$end" ]; then
    echo "gpu-spot: the git host did not answer for $GPU_SPOT_OUTAGE_SECONDS s; not counted" >&2
    exit "$outage_exit_code"
  fi
  echo "gpu-spot: the git host does not answer; next try in $delay s, for $((end - now)) s; not counted" >&2
  sleep "$delay"
  delay=$((delay * 2))
  if [ "$delay" -gt "$longest_delay_seconds" ]; then delay=$longest_delay_seconds; fi
done
