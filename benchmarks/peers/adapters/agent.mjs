// The process of one contender on Node.js: `node agent.mjs ADAPTER`, the same protocol as agent.py.
import readline from "node:readline";
import { Unsupported } from "./measuring.mjs";

// Standard output is for results only.
console.log = console.info = console.debug = console.error;

const [file, ...options] = process.argv.slice(2);
const { Adapter } = await import(new URL(file, import.meta.url));
const adapter = new Adapter(...options);
for await (const line of readline.createInterface({ input: process.stdin })) {
  const { call, ...request } = JSON.parse(line);
  let answer;
  try {
    if (!adapter[call]) throw new Unsupported("its public API has no such call");
    answer = await adapter[call](request);
  } catch (error) {
    if (!(error instanceof Unsupported)) console.error(error);
    answer = { unsupported: error instanceof Unsupported ? error.message : `failed: ${error.message}`.slice(0, 300) };
  }
  process.stdout.write(JSON.stringify(answer ?? {}) + "\n");
}
process.exit(0);
