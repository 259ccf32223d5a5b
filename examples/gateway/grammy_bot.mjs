// A bot with grammY behind the gateway: it repeats what people say, and queues the news.
//
//   npm install --no-package-lock && TELEGRAM_BOT_TOKEN=42:any node grammy_bot.mjs

import { autoRetry } from "@grammyjs/auto-retry";
import { Api, Bot } from "grammy";

const token = process.env.TELEGRAM_BOT_TOKEN;
const apiRoot = process.env.TELEGRAM_API_URL ?? "http://127.0.0.1:8081"; // the gateway

const bot = new Bot(token, { client: { apiRoot } });
// The gateway answers 429 only if the turn of a call comes later than 4 s: then this waits as long as it is told.
// What may have been sent already is not sent again.
bot.api.config.use(autoRetry({ rethrowHttpErrors: true, rethrowInternalServerErrors: true }));

// Calls of this one are queued: answered at once, delivered in their turn, also after a restart of the bot.
const queue = new Api(token, {
  apiRoot,
  fetch: (url, { signal, ...init }) =>
    fetch(url, { ...init, headers: { ...init.headers, "X-Tidegate": "queue; priority=low" } }),
});

bot.command("news", (ctx) => queue.sendMessage(ctx.chat.id, "News for you"));
bot.on("message:text", (ctx) => ctx.reply(`You said: ${ctx.message.text}`));

process.once("SIGTERM", () => bot.stop());
await bot.start();
