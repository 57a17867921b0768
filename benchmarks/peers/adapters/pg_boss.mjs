// pg-boss through send, insert, fetch + complete, and work().
import PgBoss from "pg-boss";
import { Countdown, Lateness, Watch, body } from "./measuring.mjs";

export class Adapter {
  async open({ dsn, create = true, lease_s = 3600 }) {
    this.boss = new PgBoss({ connectionString: dsn, max: 10, expireInSeconds: lease_s });
    this.boss.on("error", console.error);
    await this.boss.start();
    if (create) await this.boss.createQueue("bench");
  }
  async produce({ seconds = 1e9, batch = 1, most, delay_s = 0 }) {
    const watch = new Watch(seconds, most);
    const startAfter = delay_s || undefined;
    while (watch.goesOn) {
      if (batch === 1) await this.boss.send("bench", body(watch.n), { startAfter });
      else
        await this.boss.insert(
          Array.from({ length: batch }, (_, i) => ({ name: "bench", data: body(watch.n + i), startAfter })),
        );
      watch.step(batch);
    }
    return watch.result();
  }
  async consume({ seconds, batch = 1, most }) {
    const watch = new Watch(seconds, most);
    while (watch.goesOn) {
      const jobs = await this.boss.fetch("bench", { batchSize: batch });
      if (!jobs.length) break;
      await this.boss.complete("bench", jobs.map((job) => job.id));
      watch.step(jobs.length);
    }
    return watch.result();
  }
  async work({ n, concurrency }) {
    const countdown = new Countdown(n);
    const options = { batchSize: concurrency, pollingIntervalSeconds: 0.5 };
    await this.boss.work("bench", options, async (jobs) => jobs.forEach(() => countdown.count()));
    await countdown.done;
    await this.boss.offWork("bench");
    return countdown.result("fetches a batch every 0.5 s, its shortest interval");
  }
  async late({ n, every_s }) {
    const lateness = new Lateness(n);
    await this.boss.work("bench", { batchSize: 16, pollingIntervalSeconds: 0.5 }, async (jobs) =>
      jobs.forEach((job) => lateness.handled(job.data.order)),
    );
    await new Promise((resolve) => setTimeout(resolve, 1000));
    await lateness.send((i) => this.boss.send("bench", body(i)), n, every_s);
    await lateness.done;
    await this.boss.offWork("bench");
    return lateness.result();
  }
  async poll_only({ n }) {
    let held = 0;
    while (held < n) {
      const jobs = await this.boss.fetch("bench", { batchSize: Math.min(1000, n - held) });
      if (!jobs.length) break;
      held += jobs.length;
    }
    return { n: held };
  }
  async close() {
    await this.boss.stop({ graceful: false });
  }
}
