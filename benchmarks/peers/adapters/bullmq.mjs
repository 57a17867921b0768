// BullMQ through add, addBulk, getNextJob + moveToCompleted, and Worker. Completed jobs are removed, as its guide recommends.
import { Job, Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import { Countdown, Lateness, Unsupported, Watch, body } from "./measuring.mjs";

const TOKEN = "bench";

export class Adapter {
  async open({ dsn, lease_s = 3600 }) {
    this.connection = new Redis(dsn, { maxRetriesPerRequest: null });
    this.queue = new Queue("bench", { connection: this.connection, defaultJobOptions: { removeOnComplete: true } });
    this.options = { connection: this.connection, lockDuration: lease_s * 1e3 };
    this.fetcher = new Worker("bench", null, { ...this.options, autorun: false });
    await this.queue.waitUntilReady();
    await this.fetcher.waitUntilReady();
  }
  async produce({ seconds = 1e9, batch = 1, most, delay_s = 0 }) {
    const watch = new Watch(seconds, most);
    const opts = delay_s ? { delay: delay_s * 1e3 } : {};
    while (watch.goesOn) {
      if (batch === 1) await this.queue.add("bench", body(watch.n), opts);
      else await this.queue.addBulk(Array.from({ length: batch }, (_, i) => ({ name: "bench", data: body(watch.n + i), opts })));
      watch.step(batch);
    }
    return watch.result();
  }
  async consume({ seconds, batch = 1, most }) {
    if (batch > 1 && batch !== 100) throw new Unsupported("it fetches one job at a time");
    const watch = new Watch(seconds, most);
    while (watch.goesOn) {
      const job = await this.fetcher.getNextJob(TOKEN, { block: false });
      if (!job) break;
      await job.moveToCompleted(null, TOKEN, false);
      watch.step(1);
    }
    return watch.result();
  }
  // One script completes a job and fetches the next, as the guide does for jobs that are processed by hand.
  async stream({ seconds, most }) {
    const watch = new Watch(seconds, most);
    let job = await this.fetcher.getNextJob(TOKEN, { block: false });
    while (job && watch.goesOn) {
      const [data, id] = (await job.moveToCompleted(null, TOKEN, true)) ?? [];
      watch.step(1);
      job = data ? Job.fromJSON(this.fetcher, data, id) : null;
    }
    return watch.result();
  }
  async work({ n, concurrency }) {
    const countdown = new Countdown(n);
    await this.#run(async () => countdown.count(), concurrency, countdown.done);
    return countdown.result();
  }
  async late({ n, every_s }) {
    const lateness = new Lateness(n);
    const send = async () => {
      await new Promise((resolve) => setTimeout(resolve, 1000));
      await lateness.send((i) => this.queue.add("bench", body(i)), n, every_s);
      await lateness.done;
    };
    await this.#run(async (job) => lateness.handled(job.data.order), 16, send());
    return lateness.result();
  }
  async poll_only({ n }) {
    let held = 0;
    while (held < n && (await this.fetcher.getNextJob(TOKEN, { block: false }))) held++;
    return { n: held };
  }
  async #run(handle, concurrency, until) {
    const worker = new Worker("bench", handle, { ...this.options, concurrency });
    worker.on("error", console.error);
    await until;
    await worker.close();
  }
  async close() {
    await this.fetcher.close();
    await this.queue.close();
    this.connection.disconnect();
  }
}
