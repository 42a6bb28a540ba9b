#!/usr/bin/env bash
# What `make run` does once everything is built: one gateway on the embedded store, affinity on, with a server
# that runs code in a sandbox, and in front of two small servers that count per session. Says how to use it,
# shows its log, ends with Ctrl-C.
#
#   run.sh BINARIES      the directory with `mooring` and `mooring-demo-server`
#   PORT=4444            the gateway's port
set -euo pipefail
cd "$(dirname "$0")/.."

binaries=${1:?the directory with the binaries}
port=${PORT:-4444}
state=.run/demo
mkdir -p "$state"
# shellcheck source=scripts/lib/children.sh
. scripts/lib/children.sh

need_free_port "$port" PORT
start_counting_servers "$binaries" "$state"
cat >"$state/mooring.toml" <<EOF
[listen]
address = "127.0.0.1:$port"

[store]
url = "embedded"
path = "$PWD/$state/sessions.sqlite"

[affinity]
enabled = true

[code]
base_dir = "$PWD/$state/code"

[default]
server = "sandbox"

[[servers]]
id = "sandbox"
kind = "code"

[[servers]]
id = "tools"
kind = "http"
instances = [$instances]
EOF

log=$state/gateway.log
start "$log" "$binaries/mooring" serve --config "$state/mooring.toml"
gateway=$!
await "the gateway" "$gateway" "$log" is_ready "$port"

sandbox=http://127.0.0.1:$port/servers/sandbox/mcp
endpoint=http://127.0.0.1:$port/servers/tools/mcp
cat <<EOF

Mooring runs code in a sandbox, as the MCP server

  $sandbox

Client configuration:

  $(print_client_configuration "$sandbox")

A first call, in another terminal:

  curl -s $sandbox \\
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\
    -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell_exec","arguments":{"language":"python","code":"print(\"a run\", file=open(\"/scratch/log\", \"a\")); print(open(\"/scratch/log\").read())"}}}'

Repeat it: the file grows, because /scratch is kept for the next run. The shell of one line sees it too, and nothing
of this machine:

  curl -s $sandbox \\
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\
    -d '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"shell_exec","arguments":{"code":"ls / | sort"}}}'

It also serves an MCP server with two instances. Code in the sandbox calls its tools as functions, and only what it
prints comes back:

  curl -s $sandbox \\
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\
    -d '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"shell_exec","arguments":{"language":"python","code":"from tools.tools import increment; print(sum(increment()[\"count\"] for _ in range(10)))"}}}'

Clients call it, too. Its instances remember something per session, at

  $endpoint

  session=\$(curl -sD - -o /dev/null $endpoint \\
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\
    -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}' \\
    | tr -d '\\r' | sed -n 's/^mcp-session-id: //Ip')

  curl -s $endpoint -H "Mcp-Session-Id: \$session" -H 'MCP-Protocol-Version: 2025-11-25' \\
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\
    -d '{"jsonrpc":"2.0","method":"notifications/initialized"}'

  curl -s $endpoint -H "Mcp-Session-Id: \$session" -H 'MCP-Protocol-Version: 2025-11-25' \\
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\
    -d '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"increment","arguments":{}}}'

Repeat the last one: the count goes up, always on the same instance. Then kill that instance
(counting-1 is process ${server_pids[0]}, counting-2 is ${server_pids[1]}) and repeat it again: the session
continues at the other one, and the reply says that the count was lost. Restart this command: sessions are kept in
$state.

The operators' page, for your browser: http://127.0.0.1:$port/ui
Sessions and rebinds in figures: http://127.0.0.1:$port/metrics
The gateway's log follows; Ctrl-C stops everything.

EOF
tail -n +1 -F --pid=$gateway "$log" 2>/dev/null &
children+=($!)
wait "$gateway" && status=0 || status=$?
echo "the gateway has ended with exit code $status" >&2
exit "$status"
