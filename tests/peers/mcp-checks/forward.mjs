// Forwards requests to a server and adds its token, which the conformance suite cannot send.
// Usage: forward.mjs URL TOKEN; prints the URL to use.
import http from "node:http";

const [target, token] = process.argv.slice(2);
const { hostname, port, pathname } = new URL(target);

const server = http.createServer((request, response) => {
  const own = `:${server.address().port}`;
  // The headers `Host` and `Origin` must name the server instead of this program.
  const headers = request.rawHeaders.map((word) => word.replaceAll(own, `:${port}`));
  headers.push("Authorization", `Bearer ${token}`);
  const { method, url: path } = request;
  const passed = http.request({ hostname, port, method, path, headers, setHost: false }, (answer) => {
    response.writeHead(answer.statusCode, answer.rawHeaders);
    response.flushHeaders();
    answer.pipe(response);
  });
  passed.on("error", () => response.destroy());
  response.on("close", () => passed.destroy());
  request.pipe(passed);
});

server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}${pathname}`));
