// The bot of flood_gateway.py in grammY: it repeats what people say, and does as flood_bots.py does.
//
//   node flood_grammy.mjs URL READERS      (its packages beside it: tests/node_packages.py)

import { createInterface } from "node:readline";
import { autoRetry } from "@grammyjs/auto-retry";
import { Bot } from "grammy";

const [url, readers] = [process.argv[2], Number(process.argv[3])];
const tell = (words) => process.stdout.write(`${JSON.stringify(words)}\n`);

const bot = new Bot("42:flood", { client: { apiRoot: url } });
bot.api.config.use(autoRetry({ rethrowHttpErrors: true, rethrowInternalServerErrors: true }));
// Not awaited: grammY hands over one update after the other, and a reply may wait for its turn.
bot.on("message:text", (ctx) => {
  ctx.reply(`You said: ${ctx.message.text}`).catch(() => {});
});

let [next, sent, failed, over] = [1, 0, 0, false];
async function sendToEach() {
  while (next <= readers && !over) {
    try {
      await bot.api.sendMessage(next++, "News for everybody, issue #1");
      sent += 1;
    } catch {
      failed += 1;
    }
  }
}

const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
await bot.init();
bot.start();
tell({ ready: true });
await input.next();
const before = process.cpuUsage();
for (let i = 0; i < 20; i += 1) sendToEach();
await input.next();
over = true;
const [used, ending] = [process.cpuUsage(before), Date.now()];
await bot.stop();
tell({
  accepted: 0,
  failed,
  waiting: readers - sent - failed,
  dead: 0,
  parked: 0,
  cpu_s: Math.round((used.user + used.system) / 1e5) / 10,
  peak_mb: Math.round(process.resourceUsage().maxRSS / 100) / 10,
  shutdown_s: (Date.now() - ending) / 1000,
});
process.exit(0);
