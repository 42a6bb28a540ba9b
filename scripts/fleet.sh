#!/usr/bin/env bash
# What `make fleet` does once everything is built: redis-server with the module, three gateways that share
# it, and two small servers that count per session. Says how to watch them, ends with Ctrl-C.
#
#   fleet.sh BINARIES    the directory with `mooring`, `mooring-demo-server` and `libmooring.so`
#   REDIS_PORT=6390      Redis
#   PORT=4441            the first gateway; the others take the next two
set -euo pipefail
cd "$(dirname "$0")/.."

binaries=${1:?the directory with the binaries}
redis_port=${REDIS_PORT:-6390}
port=${PORT:-4441}
state=.run/fleet
mkdir -p "$state"
# Its session is not in this run's Redis.
rm -f "$state/session"
# shellcheck source=scripts/lib/children.sh
. scripts/lib/children.sh

need_free_port "$redis_port" REDIS_PORT
for number in 0 1 2; do need_free_port $((port + number)) PORT; done
start "$state/redis.log" redis-server --port "$redis_port" --bind 127.0.0.1 --dir "$state" \
    --save '' --appendonly no --hash-max-listpack-value 512 \
    --loadmodule "$(realpath "$binaries/libmooring.so")"
redis=$!
await "redis-server" "$redis" "$state/redis.log" redis-cli -p "$redis_port" INFO mooring

start_counting_servers "$binaries" "$state"
cat >"$state/mooring.toml" <<EOF
[store]
url = "redis://127.0.0.1:$redis_port"

[affinity]
enabled = true

[default]
server = "tools"

[[servers]]
id = "tools"
kind = "http"
instances = [$instances]
EOF

gateways=()
endpoints=()
for number in 1 2 3; do
    gateway_port=$((port + number - 1))
    log=$state/gateway-$number.log
    MOORING_WORKER_NAME=gateway-$number MOORING_LISTEN_ADDRESS=127.0.0.1:$gateway_port \
        start "$log" "$binaries/mooring" serve --config "$state/mooring.toml"
    gateways+=($!)
    await "gateway $number" $! "$log" is_ready "$gateway_port"
    endpoints+=("http://127.0.0.1:$gateway_port/servers/tools/mcp")
done

cat <<EOF

Three gateways share one Redis, so a session may be used through any of them:

  gateway-1  process ${gateways[0]}  ${endpoints[0]}
  gateway-2  process ${gateways[1]}  ${endpoints[1]}
  gateway-3  process ${gateways[2]}  ${endpoints[2]}

Client configuration (in production, use the address of the load balancer):

  $(print_client_configuration "${endpoints[0]}")

The operators' page, for your browser, is the same at each of them: ${endpoints[0]%/servers/*}/ui

Watch them:

  redis-cli -3 -p $redis_port WORKER.LIST                  who is alive
  redis-cli -p $redis_port INFO mooring                    sessions, bindings, rebinds, failures
  redis-cli -p $redis_port --scan --pattern 'mcpgw:*'      the records, plain hashes
  redis-cli -3 -p $redis_port SESSION.GET KEY              one record, and where its calls go
  redis-cli -p $redis_port MONITOR                         every command as it comes
  redis-cli -p $redis_port SLOWLOG GET                     commands that took long
  tail -f $state/gateway-*.log                   what the gateways say

Try:

  scripts/count.sh $port    count in one session, through gateway-1
  kill -9 ${gateways[0]}             gateway-1: its sessions continue through the other two
  kill -9 ${server_pids[0]}             an instance: its sessions move to the other one, and their next reply says so

Ctrl-C stops everything.
EOF
# Killing one of them is part of the show, so only the end of all three ends the fleet.
for gateway in "${gateways[@]}"; do wait "$gateway" || true; done
echo "all gateways have ended" >&2
