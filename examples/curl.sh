#!/usr/bin/env bash
# Every HTTP endpoint of the server, by curl. Writes question.wav and answer.wav into this folder.
#
#   mosslive serve
#   examples/curl.sh                                # or: examples/curl.sh http://HOST:PORT KEY
#
# What needs a WebSocket is in microphone.py, what needs WebRTC in browser.html.
set -euo pipefail

base=${1:-http://127.0.0.1:8000}
key=${2:-any} # a server without keys ignores it
get() {
    curl --silent --show-error --fail-with-body --write-out '\n' \
        --header "Authorization: Bearer $key" "$@"
}
post() { get --header "Content-Type: application/json" "$@"; }
try() { get "$@" || true; } # a model with one voice refuses voices, and says why

# Read a text aloud, and write down what was said. (The bundled model answers questions instead of
# reading them.)
text='"input": "The cat sees the dog.", "voice": "default"'
post "$base/v1/audio/speech" --output question.wav --data "{$text, \"response_format\": \"wav\"}"
get "$base/v1/audio/transcriptions" --form file=@question.wav --form model=moss-speech

# Ask in writing; ask aloud for an answer aloud; the same in pieces, as they are ready.
post "$base/v1/chat/completions" \
    --data '{"model": "moss-speech", "messages": [{"role": "user", "content": "How are you?"}]}'
sound="{\"data\": \"$(base64 < question.wav | tr -d '\n')\", \"format\": \"wav\"}"
asked="[{\"role\": \"user\", \"content\": [{\"type\": \"input_audio\", \"input_audio\": $sound}]}]"
spoken='"modalities": ["text", "audio"], "audio": {"voice": "default", "format": "wav"}'
post "$base/v1/chat/completions" --data @- <<< "{\"messages\": $asked, $spoken}" > answer.json
sed 's/.*"data": *"\([^"]*\)".*/\1/' answer.json | base64 --decode > answer.wav
rm answer.json
streamed='"modalities": ["text", "audio"], "audio": {"voice": "default", "format": "pcm16"}'
post --no-buffer "$base/v1/chat/completions" \
    --data @- <<< "{\"messages\": $asked, $streamed, \"stream\": true}" | cut -c 1-120

# The model, and its voices.
get "$base/v1/models"
get "$base/v1/models/moss-speech"
get "$base/v1/voices"
get "$base/v1/audio/voices"
try "$base/v1/voices" --form name=mine --form file=@question.wav
try --request DELETE "$base/v1/voices/mine"

# An ephemeral key for a browser, and the servers that help it to connect.
post "$base/v1/realtime/client_secrets" \
    --data '{"expires_after": {"anchor": "created_at", "seconds": 60}}'
get "$base/v1/realtime/ice_servers"

# The state of the server.
get "$base/health"
get "$base/health/live"
get "$base/version"
get "$base/metrics" | grep '^mosslive_session_seconds_count'
