// A market place that sends its orders over HTTP: node producer.mjs COUNT. Node 20 or newer, and no packages.
const url = process.env.TARRY_URL ?? "http://127.0.0.1:8080";
const key = process.env.TARRY_KEY;

async function offer(queue, message) {
  const headers = {
    "Content-Type": "application/json",
    "Idempotency-Key": crypto.randomUUID(), // the same for every try: the message is stored once
    ...(key && { Authorization: `Bearer ${key}` }),
  };
  for (let tries = 1; ; tries++) {
    try {
      const response = await fetch(`${url}/v1/queues/${queue}/messages`, {
        method: "POST", headers, body: JSON.stringify(message),
      });
      if (response.ok) return await response.json();
      const passes = [409, 429, 502, 503, 504].includes(response.status);
      if (!passes || tries === 5) throw Object.assign(new Error(await response.text()), { final: true });
    } catch (error) {
      if (error.final || tries === 5) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** tries));
  }
}

const count = Number(process.argv[2] ?? 10);
for (let n = 0; n < count; n++) {
  const order = { id: `market-${n}`, email: `market-${n}@example.com`, total: 10 + n, card: "good" };
  await offer("imports", { key: order.id, payload: order, priority: 7 });
}
console.log(`${count} orders sent`);
