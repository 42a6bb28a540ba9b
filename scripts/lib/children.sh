# shellcheck shell=bash
# For scripts that keep programs running until they are stopped; to be sourced.
#
# Invariant: only what this script started is stopped, by its process id, and it is stopped however the
# script ends.

children=()

# start LOG COMMAND...: in the background, output to the file. Its process id is then in $!.
start() {
    local log=$1
    shift
    "$@" >"$log" 2>&1 </dev/null &
    children+=($!)
}

# The last started first: a gateway says good-bye to a store that still runs.
stop_children() {
    trap '' INT TERM
    local index
    for ((index = ${#children[@]} - 1; index >= 0; index--)); do
        kill "${children[index]}" 2>/dev/null || continue
        wait "${children[index]}" 2>/dev/null || true
    done
}
trap stop_children EXIT
trap 'echo; exit 0' INT TERM

# need_free_port PORT VARIABLE: what answers there already would be taken for what this script starts.
need_free_port() {
    if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then
        echo "port $1 is in use; stop what listens there, or choose another with $2=..." >&2
        exit 69
    fi
}

# await WHAT PID LOG COMMAND...: until the command succeeds, for 15 seconds at most. If the process ends
# first, its log is shown.
await() {
    local what=$1 pid=$2 log=$3 tries
    shift 3
    for ((tries = 0; tries < 150; tries++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    echo "$what did not start; the end of $log:" >&2
    tail -n 20 "$log" >&2
    exit 69
}

# is_ready PORT: whether a gateway on 127.0.0.1 answers that it is ready. Bash's own sockets, because a
# bare machine has no curl.
is_ready() {
    local status
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf 'GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3
    read -r -t 2 status <&3
    exec 3>&-
    [[ $status == *" 200 "* ]]
}

# start_counting_servers BINARIES DIRECTORY: two small servers that count per session. Their ports are then in
# $server_ports, their process ids in $server_pids, and their URLs, as TOML, in $instances.
start_counting_servers() {
    local binaries=$1 directory=$2 number log
    server_ports=()
    server_pids=()
    for number in 1 2; do
        log=$directory/counting-$number.log
        start "$log" "$binaries/mooring-demo-server" --instance "counting-$number"
        server_pids+=($!)
        await "counting server $number" $! "$log" grep -q '"port"' "$log"
        server_ports+=("$(sed -n 's/.*"port":\([0-9]*\).*/\1/p' "$log")")
    done
    instances="\"http://127.0.0.1:${server_ports[0]}/mcp\", \"http://127.0.0.1:${server_ports[1]}/mcp\""
}

# print_client_configuration ENDPOINT: .../servers/NAME/mcp
print_client_configuration() {
    local name=${1%/mcp}
    printf '{ "mcpServers": { "%s": { "type": "http", "url": "%s" } } }\n' "${name##*/}" "$1"
}
