// Serves NocoDB on 127.0.0.1:$PORT until its input ends, if only because whoever started it died.
// What it keeps goes to $NC_TOOL_DIR.
const http = require("http");
const express = require("express");
const { Noco } = require("nocodb");

const app = express();
const server = http.createServer(app);
process.stdin.on("end", () => process.exit(0)).resume();
server.listen(Number(process.env.PORT), "127.0.0.1", async () => {
  app.use(await Noco.init({}, server, app));
});
