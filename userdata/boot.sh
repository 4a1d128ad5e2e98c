#!/usr/bin/env bash
# The first boot of a GPU instance, run by cloud-init as root: fetch the node agent, verify it, start its units.
# Later boots need none of this: systemd starts the units. One that lost its power here runs it again, which
# changes nothing that is done; cloud-init itself would run it once, whether it ended or not.
set -euo pipefail

root=${GPU_SPOT_ROOT:-} # a test's; empty on an instance
metadata=${GPU_SPOT_METADATA:-http://169.254.169.254}
cloud=$root/var/lib/cloud/instance # of this instance: one that starts from an image of it has another
[[ ! -e $cloud/gpu-spot-booted ]] && grep --quiet gpu-spot/boot.sh "$cloud/user-data.txt" || exit 0
# REGION STACK GROUP LAUNCH_HOOK AGENT_BUCKET AGENT_KEY AGENT_SHA256 CLOUDWATCH_PARAMETER UNITS
# shellcheck source=/dev/null
source "$root/etc/gpu-spot/boot.env"
export AWS_DEFAULT_REGION=$REGION AWS_RETRY_MODE=standard AWS_MAX_ATTEMPTS=5
# For the role's credentials the CLI asks once, for a second: botocore, "metadata_service_num_attempts".
export AWS_METADATA_SERVICE_NUM_ATTEMPTS=5 AWS_METADATA_SERVICE_TIMEOUT=2
# The metadata service, with the role's credentials, is never behind a proxy.
no_proxy=${no_proxy-${NO_PROXY-}}
[[ $no_proxy == '*' ]] || no_proxy=${no_proxy:+$no_proxy,}169.254.169.254
export no_proxy NO_PROXY=$no_proxy

say() { echo "gpu-spot boot: $*"; }

persist() { # COMMAND: until it succeeds, in the boot's first nine minutes; the launch hook times out after ten
  local tries=0
  until "$@"; do
    ((SECONDS < 540 && ++tries < 54)) || return 1
    say "again in 10 s: $step"
    sleep 10
  done
}

send_logs() { # and metrics, from now on
  [[ -x $control ]] && "$control" -a fetch-config -m ec2 -s -c "ssm:$CLOUDWATCH_PARAMETER"
}
control=$root/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl

imds() { # PATH below meta-data
  local options=(--silent --show-error --fail --max-time 5 --retry 5 --retry-connrefused) token
  token=$(curl "${options[@]}" --request PUT --header 'X-aws-ec2-metadata-token-ttl-seconds: 300' \
    "$metadata/latest/api/token")
  curl "${options[@]}" --header "X-aws-ec2-metadata-token: $token" "$metadata/latest/meta-data/$1"
}

abandon() { # the instance is of no use: let the group replace it
  # In a trap a bare `return` gives back the status from before it.
  local instance asg
  instance=$(imds instance-id) && asg=$(imds tags/instance/aws:autoscaling:groupName) || return 1
  for _ in 1 2 3 4 5 6; do # the hook may begin after us
    aws autoscaling complete-lifecycle-action --auto-scaling-group-name "$asg" \
      --lifecycle-hook-name "$LAUNCH_HOOK" --instance-id "$instance" --lifecycle-action-result ABANDON && return 0
    sleep 10
  done
  return 1
}

ended() {
  local status=$?
  trap - EXIT
  ((status)) || exit 0
  set +e
  # Also in the instance's console output, which needs no credentials: cloud-final.service, StandardOutput=.
  say "FAILED with status $status: $step"
  wait "$sending" || send_logs
  aws cloudwatch put-metric-data --namespace gpu-spot/instances --metric-name BootFailures \
    --unit Count --value 1 --dimensions "stack=$STACK,group=$GROUP"
  sleep 15 # the CloudWatch agent sends this log every 5 s
  if [[ -z $LAUNCH_HOOK ]] || ! abandon; then
    # Nobody waits for this launch. Groups and fleets replace an instance that does not run; until then a
    # person can look, and a stack whose every boot fails starts few instances.
    shutdown --poweroff +5
  fi
  exit "$status"
}
trap ended EXIT
# Beside all else: the work does not wait for it.
send_logs &
sending=$!

# The first call of AWS: the role's credentials and its policy may be seconds younger than the instance.
step="fetch s3://$AGENT_BUCKET/$AGENT_KEY"
home=$root/opt/gpu-spot
archive=$home/agent.zip
persist aws s3 cp --only-show-errors "s3://$AGENT_BUCKET/$AGENT_KEY" "$archive"

systemctl --no-block try-restart rsyslog.service || say 'no rsyslog: the log of the units stays in the journal'

step='find Python 3.11 or newer'
# The image's own comes first; some have an old one by that name, and a newer one beside it.
found=
for python in "$root"/usr{,/local}/bin/python3{,.1{4..1}} ''; do
  [[ -x $python ]] || continue
  ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || break
  found+=", $("$python" --version 2>&1) as $python"
done
step+=": found ${found:2}"
[[ -n $python ]]
ln --symbolic --force --no-dereference "$python" "$home/python" # what the units run

step='find nft or iptables: without them a job could take the role of the instance'
[[ " $UNITS " != *' gpu-spot-run.service '* || -x $root/usr/sbin/nft || -x $root/usr/sbin/iptables ]]

step="verify that its SHA-256 is $AGENT_SHA256"
sha256sum --check --status <<<"$AGENT_SHA256  $archive"

step='unpack the node agent'
if [[ ! -d $home/$AGENT_SHA256 ]]; then
  rm --recursive --force "$home/unpacking"
  "$home/python" -m zipfile -e "$archive" "$home/unpacking"
  sync --file-system "$home" # a loss of power must not leave the name below without its files
  mv "$home/unpacking" "$home/$AGENT_SHA256"
fi
rm "$archive"
ln --symbolic --force --no-dereference "$AGENT_SHA256" "$home/agent"

step='find mount.efs: the image lacks amazon-efs-utils'
[[ " $UNITS " != *' gpu-spot-efs.service '* || -x $root/sbin/mount.efs ]]

step='start the units'
install --mode=0644 --target-directory="$root/etc/systemd/system" "$home"/agent/userdata/agent/units/*.service
read -ra wanted <<<"$UNITS"
systemctl enable --no-reload "${wanted[@]}"
systemctl daemon-reload
systemctl --no-block try-restart logrotate.timer || say 'no logrotate: the log of the units grows'
# A data volume may take tens of minutes: cloud-init does not wait for it.
systemctl start --no-block "${wanted[@]}"
say "started $UNITS"
step='start the CloudWatch agent'
wait "$sending" || { [[ -x $control ]] && persist send_logs; } || say 'no CloudWatch agent: metrics and logs stay here'
touch "$cloud/gpu-spot-booted"
