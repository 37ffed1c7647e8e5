"""An engineer trains in PyTorch on two ranks, stops the run, and continues it.

Run it with `torchrun --nproc-per-node 2 torch_engineer.py`.
"""

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

import penstock as ps

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    features = np.random.default_rng(0).standard_normal((103, 8)).astype(np.float32)
    rows = {"id": np.arange(103), "features": features, "target": features.sum(1)}
    ps.write(rows, "train.tfrecord", num_shards=3)
dist.barrier()


def everything():
    """Return the model, optimizer and loader of a run. The model is the same on all ranks."""
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ds = ps.open("train@3.tfrecord")
    loader = ps.Loader(ds, 8, order=ps.Shuffled(seed=0), rank="auto").torch()
    return model, optimizer, loader


def step(model, optimizer, batch):
    loss = ((model(batch["features"])[:, 0] - batch["target"]) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()
    return batch["id"].tolist()


# A run of two epochs that is not stopped.
model, optimizer, loader = everything()
whole = [[step(model, optimizer, batch) for batch in loader] for epoch in range(2)]
finished = model.weight.detach().clone()

# The same run, stopped after three steps of its second epoch.
model, optimizer, loader = everything()
stopped = [step(model, optimizer, batch) for batch in loader]
for number, batch in enumerate(loader, 1):
    stopped.append(step(model, optimizer, batch))
    if number == 3:
        break
state = [model.state_dict(), optimizer.state_dict(), loader.state_dict()]
torch.save(state, f"saved-{dist.get_rank()}.pt")

# A new process would begin here.
parts = everything()
for part, saved in zip(parts, torch.load(f"saved-{dist.get_rank()}.pt"), strict=True):
    part.load_state_dict(saved)
model, optimizer, loader = parts
rest = [step(model, optimizer, batch) for batch in loader]

assert stopped + rest == whole[0] + whole[1]
assert torch.equal(model.weight, finished)
assert len(whole[0]) == len(whole[1]) == 7  # 103 records, 16 a step

# Both ranks together read every record in each epoch; the last step repeats one.
both = [None, None]
dist.all_gather_object(both, whole)
for epoch in range(2):
    ids = sorted(number for rank in both for ids in rank[epoch] for number in ids)
    assert sorted(set(ids)) == list(range(103)) and len(ids) == 104

# One rank alone continues the epoch. It reads exactly the records that are left.
alone = ps.Loader(ps.open("train@3.tfrecord"), 16, order=ps.Shuffled(seed=0), rank=0, world_size=1)
alone.load_state_dict(state[2])
left = {number for batch in alone for number in batch["id"].tolist()}
read = {number for rank in both for ids in rank[1][:3] for number in ids}
assert left == set(range(103)) - read
dist.destroy_process_group()
