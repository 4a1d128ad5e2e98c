#!/bin/sh
# Runs a job's command in its pod, and says by its exit code what the end means, as the node agent does on
# instances (docs/contract.md, "The end"): 0 done; 75 told to stop, so it goes on elsewhere; else a failure.
told=
child=
# shellcheck disable=SC2317 # the trap calls it
hear() {
  told=yes
  if [ ! -e "$GPU_SPOT_NOTICE" ]; then
    echo "{\"deadline\": $(($(date +%s) + GPU_SPOT_GRACE_SECONDS))}" >"$GPU_SPOT_NOTICE.new"
    mv "$GPU_SPOT_NOTICE.new" "$GPU_SPOT_NOTICE"
  fi
  if [ -n "$child" ]; then kill -TERM "$child" 2>/dev/null; fi
}
trap hear TERM
if [ -n "$JOB_COMPLETION_INDEX" ] && [ -e "/etc/gpu-spot/experiments/$JOB_COMPLETION_INDEX" ]; then
  # shellcheck source=/dev/null
  . "/etc/gpu-spot/experiments/$JOB_COMPLETION_INDEX"
fi
mkdir -p "$GPU_SPOT_CHECKPOINTS" "$GPU_SPOT_ARTIFACTS" "$GPU_SPOT_SCRATCH" "${GPU_SPOT_TELL%/*}" || exit 1
mkdir -p "$HOME" "$TMPDIR" || exit 1
if [ -e "$GPU_SPOT_DONE" ]; then exit 0; fi
if [ -z "$told" ]; then
  "$@" &
  child=$!
  if [ -n "$told" ]; then kill -TERM "$child" 2>/dev/null; fi
  while :; do
    wait "$child"
    code=$?
    # A signal ends the waiting, not the command.
    if [ "$code" -gt 128 ] && kill -0 "$child" 2>/dev/null; then continue; fi
    break
  done
fi
if [ -e "$GPU_SPOT_DONE" ]; then exit 0; fi
if [ -n "$told" ]; then exit 75; fi
# A command's own 75 is a failure like any other.
if [ "$code" -eq 75 ]; then exit 1; fi
exit "$code"
