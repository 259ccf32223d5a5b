#!/bin/sh
# The gateway by curl: a message in its turn, and a queued one with its ticket.
#
#   TELEGRAM_BOT_TOKEN=42:any CHAT=1001 sh curl.sh
set -eu

api="${TELEGRAM_API_URL:-http://127.0.0.1:8081}/bot$TELEGRAM_BOT_TOKEN"

# In its turn: answered when Telegram has answered. A 429 says how long to wait; curl waits so long and comes again.
curl --fail-with-body --silent --show-error --retry 5 \
    --data "chat_id=$CHAT" --data-urlencode "text=Your order is on its way" "$api/sendMessage"
echo

# Queued: answered at once, delivered later, and only once for each order.
curl --fail-with-body --silent --show-error --dump-header - --output /dev/null \
    --header "X-Tidegate: queue; priority=low; dedup=order-17" \
    --data "chat_id=$CHAT" --data-urlencode "text=How was it?" "$api/sendMessage" | grep -i '^x-tidegate-ticket'
