#!/usr/bin/env bash
# Builds the images of deploy/Dockerfile, starts them and tests them. It needs a Docker engine with Compose; without one it
# ends with 69 before it has done anything.
#
#   images.sh build    every target, as mooring-TARGET
#   images.sh test     starts each image, then docker-compose.yml with both stores, and calls through nginx
#   images.sh          both
#
#   PORT=4455          where nginx listens in the test
#   VERSION=dev        the tag of the images, beside `latest`
#
# What it starts, it removes, also where a test fails. It does not touch a deployment of docker-compose.yml: its project has
# another name. Only the port and the subnet of the compose file have to be free.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=(gateway-slim gateway redis valkey)
version=${VERSION:-dev}
export MOORING_PORT=${PORT:-4455}
compose=(docker compose --project-name mooring-images-test)
url=http://127.0.0.1:$MOORING_PORT/servers/sandbox/mcp
# What is to be removed at the end.
container=
is_composed=

say() { echo "images: $*" >&2; }

fail() {
    say "$*"
    exit 1
}

clean_up() {
    [ -z "$container" ] || docker rm --force "$container" >/dev/null || true
    [ -z "$is_composed" ] || take_down
}

take_down() {
    "${compose[@]}" logs --tail 50 >&2 || true
    "${compose[@]}" down --volumes >&2 || true
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
        in_image "$image" /usr/bin/mooring --version
        [ "$(in_image "$image" /usr/bin/id -u)" = 1001 ] || fail "$image runs as another user than 1001"
    done
    for runtime in python3 deno rg jq; do
        in_image mooring-gateway "/usr/bin/$runtime" --version >/dev/null || fail "mooring-gateway has no $runtime"
        ! in_image mooring-gateway-slim /usr/bin/test -e "/usr/bin/$runtime" || fail "mooring-gateway-slim has $runtime"
    done
}

# test_store_image STORE: the module is loaded, and answers.
test_store_image() {
    container=$(docker run --detach --network none "mooring-$1")
    for _ in $(seq 60); do
        if docker exec "$container" redis-cli -e SESSION.STATS >/dev/null 2>&1; then
            docker rm --force "$container" >/dev/null
            container=
            say "mooring-$1 has the module"
            return
        fi
        sleep 1
    done
    docker logs --tail 50 "$container" >&2
    fail "mooring-$1: the module does not answer"
}

# expect TEXT METHOD PARAMS FAILURE: the reply to this request has the text. Calls of a code server have no session id: the
# files belong to the user.
expect() {
    local reply
    reply=$(curl --fail --silent --show-error --max-time 60 --header 'Accept: application/json, text/event-stream' \
        --json "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"$2\", \"params\": $3}" "$url")
    grep -qF "$1" <<<"$reply" || fail "$4: $reply"
}

# expect_output OUTPUT CODE FAILURE: Python prints this line and nothing else.
expect_output() {
    expect "\"output\":\"$1\\n\"" tools/call \
        "{\"name\": \"shell_exec\", \"arguments\": {\"language\": \"python\", \"code\": \"$2\"}}" "$3"
}

# Code through nginx, whose files outlive a gateway.
test_compose() {
    say "docker compose with $MOORING_REDIS"
    is_composed=1
    "${compose[@]}" up --detach --wait --wait-timeout 180
    expect serverInfo initialize \
        '{"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "images", "version": "1"}}' \
        "initialize has no result"
    expect_output 41 "open('/scratch/n', 'w').write('41'); print(41)" "no file was written"
    "${compose[@]}" kill gateway-1
    expect_output 42 "print(int(open('/scratch/n').read()) + 1)" "the files were lost with a gateway"
    "${compose[@]}" down --volumes
    is_composed=
}

test_images() {
    test_gateway_images
    for MOORING_REDIS in redis valkey; do
        export MOORING_REDIS
        test_store_image "$MOORING_REDIS"
        test_compose
    done
    say "all images work"
}

need_engine() {
    docker version >/dev/null 2>&1 || {
        say "there is no Docker engine: install one, or run this where there is one"
        exit 69
    }
    docker compose version >/dev/null 2>&1 || {
        say "Docker has no Compose: install its plugin, 2.24 or later"
        exit 69
    }
}

trap clean_up EXIT
case "${1:-all}" in
build)
    need_engine
    build
    ;;
test)
    need_engine
    test_images
    ;;
all)
    need_engine
    build
    test_images
    ;;
*)
    say "usage: images.sh [build|test]"
    exit 64
    ;;
esac
