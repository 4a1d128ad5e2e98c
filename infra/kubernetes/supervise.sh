#!/bin/sh
# Runs a job's command in its pod, and says by its exit code what the end means, as the node agent does on
# instances (docs/contract.md, "The end"): 0 done; 75 stopped, so it goes on elsewhere; 78 a failure after which
# the job has failed; else a failure.
#
# The command runs only under the lease of its checkpoint folder (docs/adr/0077): the file RANK/TOKEN in .lease
# there, made by a hard link, which one of several makers gets. The holder touches it. A lease ends when it says
# so, or GPU_SPOT_LEASE_SECONDS after its last renewal by the file server's clock. The next holder has the next
# token, and marks the file before it: spot_training then refuses to save (GPU_SPOT_LEASE). Who cannot renew
# stops after half the time, and is killed before the end; what decides that reads no file of the folder.
# Of a pod whose failure the Job controller counted its kubelet has reported the end: its lease has ended.
#
# Nodes that go on without each other (GPU_SPOT_NODES is MIN:MAX; docs/adr/0087) share the lease of their Job:
# each of its pods renews it, and none releases it, so no pod of another Job trains beside them. Of them the one
# with rank 0 ends the run.
is_stopped=
child=
renew_seconds=$(((GPU_SPOT_LEASE_SECONDS + 11) / 12))
stop_seconds=$((GPU_SPOT_LEASE_SECONDS / 2))
kill_seconds=$((GPU_SPOT_LEASE_SECONDS - renew_seconds))
wait_seconds=$((GPU_SPOT_LEASE_SECONDS * 15 / 2))
# The kubelet kills the container when its grace is over: the lease would last on.
deaf_seconds=$((GPU_SPOT_GRACE_SECONDS - 3))
# The kubelet evicts at 10 % of the node's disk, for DisruptionTarget, which is not counted: nodefs.available.
least_free_percent=12
run=${GPU_SPOT_TELL%/*}
is_shared=
case $GPU_SPOT_NODES in *:*) is_shared=yes ;; esac

say() { echo "gpu-spot: $*" >&2; }

# now: seconds of the monotonic clock, the same in all processes of a node.
clock() {
  read -r now _ </proc/uptime
  now=${now%%.*}
}

notify() {
  if [ ! -e "$GPU_SPOT_NOTICE" ]; then
    echo "{\"deadline\": $(($(date +%s) + $1))}" >"$GPU_SPOT_NOTICE.new"
    mv "$GPU_SPOT_NOTICE.new" "$GPU_SPOT_NOTICE"
  fi
}

# shellcheck disable=SC2317 # the trap calls it
hear() {
  if [ -n "$is_stopped" ]; then return; fi
  is_stopped=yes
  notify "$GPU_SPOT_GRACE_SECONDS"
  read -r stopped _ </proc/uptime
  echo "${stopped%%.*}" >"$run/stopped.new" && mv "$run/stopped.new" "$run/stopped"
  if [ -n "$child" ]; then kill -TERM "$child" 2>/dev/null; fi
}
trap hear TERM

# newest: the last token; 0: none.
list() {
  newest=0
  for file in "$leases"/*; do
    name=${file##*/}
    case $name in *[!0-9]*) continue ;; esac
    if [ "$name" -gt "$newest" ]; then newest=$name; fi
  done
}

# Whether the newest lease has ended; what cannot be read has not. Opening a file asks the server for its times.
is_free() {
  if [ "$newest" -eq 0 ]; then return 0; fi
  holder=$(cat "$leases/$newest") || return 1
  case $holder in
    "held by "*" of $GPU_SPOT_RUN/$JOB_COMPLETION_INDEX/"*)
      # The same index of the same Job, and a failure more.
      if [ "${holder##*/}" -lt "${GPU_SPOT_FAULTS:-0}" ]; then return 0; fi
      ;;
    held* | "") ;;
    *) return 0 ;;
  esac
  here=$(stat -c %Y "$leases/.new-$id") && there=$(stat -c %Y "$leases/$newest") || return 1
  [ $((here - there)) -gt "$GPU_SPOT_LEASE_SECONDS" ]
}

# Try once. What the file says counts, not ln: an answer may be lost on the way.
take() {
  clock
  began=$now
  rm -f "$leases/.new-$id" # else it may be the file of the lease
  echo "$mine" >"$leases/.new-$id" || return 1
  list
  if is_free; then
    token=$((newest + 1))
    ln "$leases/.new-$id" "$leases/$token" 2>/dev/null
    [ "$(cat "$leases/$token")" = "$mine" ] || return 1
    if [ "$newest" -gt 0 ]; then
      echo "superseded by $token, $mine" >"$leases/$newest" || return 1
    fi
  elif [ -n "$is_shared" ] && [ "$holder" = "$mine" ]; then
    token=$newest
    touch -c "$leases/$token" && [ "$(cat "$leases/$token")" = "$mine" ] || return 1
  else
    return 1
  fi
  echo "$began" >"$run/lease"
  # Tokens stay: ln refuses one that is there, whatever a stale listing says.
  rm -f "$leases"/.new-*
  clock
  [ $((now - began)) -lt "$stop_seconds" ]
}

acquire() {
  read -r id </proc/sys/kernel/random/uuid
  read -r host </proc/sys/kernel/hostname
  rank=0
  if [ -n "$GPU_SPOT_NODES" ] && [ -z "$is_shared" ]; then rank=${JOB_COMPLETION_INDEX:-0}; fi
  leases=$GPU_SPOT_CHECKPOINTS/.lease/$rank
  mine="held by $host $id"
  if [ -n "$is_shared" ]; then
    mine="held by the nodes of $GPU_SPOT_RUN"
  elif [ -n "$GPU_SPOT_RUN" ]; then
    mine="$mine of $GPU_SPOT_RUN/$JOB_COMPLETION_INDEX/${GPU_SPOT_FAULTS:-0}"
  fi
  clock
  end=$((now + wait_seconds))
  logged=
  until mkdir -p "$leases" && take; do
    if [ -n "$is_stopped" ]; then return 1; fi
    if [ "$logged" != "${newest:-unknown}" ]; then
      say "waiting up to $wait_seconds s for the lease of $GPU_SPOT_CHECKPOINTS: token ${newest:-unknown} ${holder:-}"
      logged=${newest:-unknown}
    fi
    clock
    if [ "$now" -ge "$end" ]; then
      say "gives up the wait for the lease; not counted"
      return 1
    fi
    sleep $((renew_seconds / 2 + 1))
  done
  say "lease of $GPU_SPOT_CHECKPOINTS: token $token"
  export GPU_SPOT_LEASE="$leases/$token"
}

renew() {
  while sleep "$renew_seconds"; do
    clock
    began=$now
    holder=$(cat "$GPU_SPOT_LEASE") || continue
    if [ "$holder" != "$mine" ]; then
      began="lost: $holder"
    else
      touch -c "$GPU_SPOT_LEASE" || continue
    fi
    echo "$began" >"$run/lease.new"
    mv "$run/lease.new" "$run/lease"
  done
}

# free: percent of the node's disk, where the job's temporary files are.
measure() {
  free=100
  while read -r _ size _ available _; do
    case $size in *[!0-9]* | 0) continue ;; esac
    free=$((available * 100 / size))
  done <<END
$(df -Pk "$TMPDIR")
END
}

end_command() {
  say "$2"
  echo "$2" >"$run/$1"
  kill -KILL "$child" 2>/dev/null
}

# Ends a command that outlives its lease, or fills the node's disk.
watch() {
  has_signalled=
  while sleep 1; do
    read -r renewed <"$run/lease"
    clock
    case $renewed in *[!0-9]* | "")
      end_command lost "lease $renewed"
      return
      ;;
    esac
    age=$((now - renewed))
    if [ "$age" -ge "$kill_seconds" ]; then
      end_command lost "lease not renewed for $age s: killed before another pod may train"
      return
    fi
    if [ -e "$run/stopped" ] && read -r stopped <"$run/stopped" && [ $((now - stopped)) -ge "$deaf_seconds" ]; then
      end_command deaf "the command did not end within $deaf_seconds s of SIGTERM: killed"
      return
    fi
    if [ "$age" -ge "$stop_seconds" ] && [ -z "$has_signalled" ]; then
      has_signalled=yes
      echo "lease not renewed for $age s: stops before another pod may train" >"$run/lost"
      say "$(cat "$run/lost")"
      notify $((kill_seconds - age))
      kill -TERM $$
    fi
    measure
    if [ "$free" -lt "$least_free_percent" ] && [ "$free_at_start" -ge "$least_free_percent" ]; then
      end_command full "the job fills the node's disk: $free % are free, less than $least_free_percent %"
      return
    fi
  done
}

# What exit code 0 of one of several nodes means, by its report (docs/contract.md, "Reporting progress"): rank 0
# exports the model, long after the others' last step. If it is lost in that, its successor repeats it.
judge() {
  report=$(cat "$GPU_SPOT_TELL" 2>/dev/null)
  case $report in
    *'"finished": true'* | *'"finished":true'*) ;;
    *)
      say 'a failure: exit code 0 of a node without the report {"finished": true} of spot_training.torch.Loop'
      code=1
      return
      ;;
  esac
  case $report in
    *'"rank": '[1-9]* | *'"rank":'[1-9]*)
      say "this node has ended; waits for the one with rank 0"
      until [ -e "$GPU_SPOT_DONE" ] || [ -n "$is_stopped" ] || [ -e "$run/lost" ]; do sleep 1; done
      ;;
    *) : >"$GPU_SPOT_DONE" ;;
  esac
}

if [ -n "$JOB_COMPLETION_INDEX" ] && [ -e "/etc/gpu-spot/experiments/$JOB_COMPLETION_INDEX" ]; then
  # shellcheck source=/dev/null
  . "/etc/gpu-spot/experiments/$JOB_COMPLETION_INDEX"
fi
mkdir -p "$GPU_SPOT_CHECKPOINTS" "$GPU_SPOT_ARTIFACTS" "$GPU_SPOT_SCRATCH" "$run" || exit 1
mkdir -p "$HOME" "$TMPDIR" || exit 1
if [ -e "$GPU_SPOT_DONE" ]; then exit 0; fi
if [ -z "$is_stopped" ]; then
  acquire || exit 75
  measure
  free_at_start=$free
  "$@" &
  child=$!
  if [ -n "$is_stopped" ]; then kill -TERM "$child" 2>/dev/null; fi
  renew &
  renewing=$!
  watch &
  watching=$!
  while :; do
    wait "$child"
    code=$?
    # A signal ends the waiting, not the command.
    if [ "$code" -gt 128 ] && kill -0 "$child" 2>/dev/null; then continue; fi
    break
  done
  if [ "$code$is_stopped" = 0 ] && [ -n "$is_shared" ] && [ ! -e "$GPU_SPOT_DONE" ]; then judge; fi
  kill "$watching" "$renewing" 2>/dev/null
  # The folder may not answer, and what the command left behind must end: its container's end does that.
  if [ -e "$run/lost" ]; then exit 75; fi
fi
is_done=
if [ -e "$GPU_SPOT_DONE" ]; then is_done=yes; fi
if [ -n "$child" ]; then
  holder=$(cat "$GPU_SPOT_LEASE")
  # spot_training refused to save, so the command failed: another pod trains.
  if [ "$holder" != "$mine" ]; then
    is_stopped=yes
  elif [ -z "$is_shared" ]; then
    echo "released" >"$GPU_SPOT_LEASE"
  fi
fi
if [ -n "$is_done" ]; then exit 0; fi
if [ -e "$run/full" ]; then
  code=1
elif [ -n "$is_stopped" ]; then
  exit 75
fi
if [ -n "$GPU_SPOT_FAULTS" ] && [ "$GPU_SPOT_FAULTS" -ge "$GPU_SPOT_MAX_RESTARTS" ]; then
  say "the job has failed with $code after $GPU_SPOT_FAULTS restarts, more than maxRestarts ($GPU_SPOT_MAX_RESTARTS)"
  exit 78
fi
# A command's own 75 or 78 is a failure like any other.
case $code in 75 | 78) exit 1 ;; esac
exit "$code"
