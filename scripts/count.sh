#!/usr/bin/env bash
# Calls the counter of `make fleet` through one of its gateways and prints the count. All calls belong to one MCP session,
# which the first one opens and a file remembers.
#
#   count.sh PORT                    the port of the gateway
#   SESSION=.run/fleet/session       the file, with the header that names the session
set -euo pipefail

port=${1:?the port of a gateway}
session=${SESSION:-$(dirname "$0")/../.run/fleet/session}

# post MESSAGE OPTION...: sends a message of MCP to the gateway.
post() {
    local message=$1
    shift
    curl --silent --show-error --fail-with-body "http://127.0.0.1:$port/servers/tools/mcp" --data "$message" \
        --header 'Content-Type: application/json' --header 'Accept: application/json, text/event-stream' "$@"
}

if [ ! -s "$session" ]; then
    client='"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"count","version":"1"}'
    head=$(post '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{'"$client"'}}' --dump-header - --output /dev/null)
    printf '%s\n' "$head" | tr -d '\r' | grep -i '^mcp-session-id:' >"$session"
    post '{"jsonrpc":"2.0","method":"notifications/initialized"}' --header "@$session"
fi
reply=$(post '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"increment","arguments":{}}}' --header "@$session")
count=$(sed -n 's/.*"count":\([0-9]*\).*/\1/p' <<<"$reply")
[[ $reply == *mooring/rebound* ]] && count+=' (the server has lost the count before it)'
echo "${count:-$reply}"
