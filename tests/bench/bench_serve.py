"""Latency and throughput of the reward server with a judge of fixed latency, at 1, 8 and 64 clients, and what it costs
beyond the judge. Three processes: the judge, the server, and the clients.

    .venv/bin/python tests/bench/bench_serve.py
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rubricflow.client import RewardClient

CRITERIA, PER_CALL, WORDS = 12, 4, 150
TOKEN = "a-token-for-the-bench"
TICKS = os.sysconf("SC_CLK_TCK")


def judge(latency, ports):
    """A judge that meets every criterion after so many seconds, with keep-alive and no limit."""

    async def answer(reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                if head.startswith("get"):  # asked what it is, it says nothing
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    continue
                size = int(next(line.split(":")[1] for line in head.splitlines() if line.startswith("content-length")))
                asked = json.loads(await reader.readexactly(size))
                schema = asked["response_format"]["json_schema"]["schema"]
                named = schema["properties"]["decisions"]["properties"]
                quote = {"unit": "S1", "quote": "The first sentence stands here"}
                decisions = {name: {"level": 1, "evidence": [quote]} for name in named}
                message = {"role": "assistant", "content": json.dumps({"decisions": decisions})}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                body = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 700, "completion_tokens": 90}})
                await asyncio.sleep(latency)
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
        ports.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def served(folder, port, ports, concurrency):
    """The server of a list of eight rubrics."""
    from rubricflow.flows import serve

    engine = serve.Engine(model="fixed", urls=(f"http://127.0.0.1:{port}/v1",), concurrency=concurrency)
    asking = serve.Judge(protocol="pointwise", criteria_per_call=PER_CALL, backend="openai", engine=engine)
    serve.list_judge = lambda *_: asking
    service = serve.service_of(Path(folder) / "list.jsonl", Path(folder) / "house", "gear", "fixed", "url")
    bound = serve.listening("127.0.0.1", 0)
    gate = serve.TokenGate("127.0.0.1", bound.getsockname()[1], TOKEN)
    ports.put(gate.port)
    gc.freeze()
    with service.kept_open():
        serve.Server(serve.create_app(service, gate), bound, serve.serving_limits()).run()


def processor_seconds(pid):
    """Processor time of a process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rollout(rng):
    words = " ".join(f"word{rng.randrange(3000)}" for _ in range(WORDS))
    return {"item_id": f"item{rng.randrange(8)}", "completion": f"The first sentence stands here. {words}."}


def measure(url, pid, clients, rollouts_each, batch):
    """Prints the row of so many clients."""
    seconds = []

    def train(number):
        client, rng = RewardClient(url, deadline_s=120, token=TOKEN), random.Random(number * 7919 + time.time_ns())
        for _ in range(rollouts_each // batch):
            begin = time.perf_counter()
            answer = client.rewards([rollout(rng) for _ in range(batch)])
            seconds.append(time.perf_counter() - begin)
            assert None not in answer["rewards"]

    before, begin = processor_seconds(pid), time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(train, range(clients)))
    wall, count = time.perf_counter() - begin, clients * (rollouts_each // batch) * batch
    spent = (processor_seconds(pid) - before) / count * 1000
    ordered = sorted(seconds)
    print(
        f"| {clients} | {count:,} | {statistics.median(ordered):.3f} | {ordered[int(0.95 * (len(ordered) - 1))]:.3f} "
        f"| {count / wall:,.0f} | {spent:.2f} |",
        flush=True,
    )


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--latency", type=float, default=0.2)
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--rollouts", type=int, default=1024, help="over all clients")
    arguments.add_argument("--concurrency", type=int, default=512)
    given = arguments.parse_args()
    started = multiprocessing.get_context("spawn")
    ports = started.Queue()
    with tempfile.TemporaryDirectory() as folder:
        rubric = [{"text": f"Names thing {n} and says why it matters", "weight": 1} for n in range(CRITERIA)]
        lines = [json.dumps({"item_id": f"item{n}", "question": f"What is {n}?", "rubric": rubric}) for n in range(8)]
        (Path(folder) / "list.jsonl").write_text("\n".join(lines))
        judging = started.Process(target=judge, args=(given.latency, ports), daemon=True)
        judging.start()
        serving = started.Process(target=served, args=(folder, ports.get(), ports, given.concurrency), daemon=True)
        serving.start()
        url = f"http://127.0.0.1:{ports.get(timeout=120)}"
        RewardClient(url, token=TOKEN).rewards([rollout(random.Random(0))])
        judged = f"{CRITERIA} criteria, {PER_CALL} in a call, a judge of {given.latency} s"
        print(f"{judged}, {given.batch} rollouts a request\n")
        print("| clients | rollouts | median s | 95% s | rollouts/s | ms of processor a rollout, server |")
        print("|---|---|---|---|---|---|")
        for clients in (1, 8, 64):
            each = max(given.batch, given.rollouts // clients if clients > 1 else given.rollouts // 8)
            measure(url, serving.pid, clients, each, given.batch)
        serving.terminate()
        serving.join(20)
        judging.terminate()


if __name__ == "__main__":
    main()
