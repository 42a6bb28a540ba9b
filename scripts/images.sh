#!/usr/bin/env bash
# Builds the images of deploy/Dockerfile, starts them and tests them: needs Docker with Compose, and nothing of it runs here
# otherwise.
#
#   images.sh build    every target, as mooring-TARGET
#   images.sh test     starts each image, then docker-compose.yml with both stores, and calls through nginx
#   images.sh          both
#
#   PORT=4455          where nginx listens in the test
#   VERSION=dev        the tag of the images, beside `latest`
set -euo pipefail
cd "$(dirname "$0")/.."

targets=(gateway-slim gateway redis valkey)
version=${VERSION:-dev}
export MOORING_PORT=${PORT:-4455}
project=mooring-images-test
url=http://127.0.0.1:$MOORING_PORT/servers/sandbox/mcp

say() { echo "images: $*" >&2; }

fail() {
    say "$*"
    exit 1
}

build() {
    for target in "${targets[@]}"; do
        say "building mooring-$target"
        docker build --file deploy/Dockerfile --platform linux/amd64 --target "$target" \
            --tag "mooring-$target" --tag "mooring-$target:$version" .
    done
}

# in_image IMAGE PROGRAM ARGUMENT...: what the program in the image prints.
in_image() { docker run --rm --network none --entrypoint "$2" "$1" "${@:3}"; }

test_gateway_images() {
    for image in mooring-gateway-slim mooring-gateway; do
        in_image $image /usr/bin/mooring --version
        [ "$(in_image $image /usr/bin/id -u)" = 1001 ] || fail "$image runs as another user than 1001"
    done
    for runtime in python3 deno rg jq; do
        in_image mooring-gateway /usr/bin/$runtime --version >/dev/null
        ! in_image mooring-gateway-slim /usr/bin/$runtime --version >/dev/null 2>&1 ||
            fail "mooring-gateway-slim has $runtime"
    done
}

# The module is loaded, and answers.
test_store_images() {
    for store in redis valkey; do
        container=$(docker run --detach --rm --network none "mooring-$store")
        for _ in $(seq 60); do
            if answer=$(docker exec "$container" redis-cli -e SESSION.STATS 2>&1); then break; fi
            sleep 1
        done
        docker stop "$container" >/dev/null
        grep -q sessions <<<"$answer" || fail "mooring-$store: $answer"
        say "mooring-$store has the module"
    done
}

# call ID METHOD PARAMS: the reply of one request of the session.
call() {
    curl --fail --silent --show-error --max-time 60 --dump-header "$headers" \
        --header 'Accept: application/json, text/event-stream' ${session:+--header "Mcp-Session-Id: $session"} \
        --json "{\"jsonrpc\": \"2.0\", \"id\": $1, \"method\": \"$2\", \"params\": $3}" "$url"
}

run_python() {
    call "$1" tools/call "{\"name\": \"shell_exec\", \"arguments\": {\"language\": \"python\", \"code\": \"$2\"}}"
}

# One session of code through nginx, over the loss of a gateway.
test_compose() {
    say "docker compose with $MOORING_REDIS"
    compose=(docker compose --project-name "$project")
    trap '"${compose[@]}" logs --tail 50 >&2 || true; "${compose[@]}" down --volumes >&2' EXIT
    "${compose[@]}" up --detach --wait --wait-timeout 180
    session=
    call 1 initialize '{"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "images", "version": "1"}}' >/dev/null
    session=$(sed -n 's/^mcp-session-id: *\([^[:space:]]*\).*/\1/Ip' "$headers")
    [ -n "$session" ] || fail "no session: $(cat "$headers")"
    grep -q 41 <<<"$(run_python 2 "open('/scratch/n', 'w').write('41'); print(41)")" || fail "no file was written"
    "${compose[@]}" kill gateway-1
    grep -q 42 <<<"$(run_python 3 "print(int(open('/scratch/n').read()) + 1)")" || fail "the session was lost with a gateway"
    "${compose[@]}" down --volumes
    trap - EXIT
}

test_images() {
    test_gateway_images
    test_store_images
    headers=$(mktemp)
    for MOORING_REDIS in redis valkey; do
        export MOORING_REDIS
        test_compose
    done
    rm "$headers"
    say "all images work"
}

docker version >/dev/null 2>&1 || {
    say "there is no Docker engine: install one, or run this where there is one"
    exit 69
}
case "${1:-all}" in
build) build ;;
test) test_images ;;
all)
    build
    test_images
    ;;
*)
    say "usage: images.sh [build|test]"
    exit 64
    ;;
esac
