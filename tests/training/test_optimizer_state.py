import torch
from torch import nn

from dr_lib.training import TrainSettings
from dr_lib.training.checkpoint import (
    load_optimizer_tensors,
    module_tensors,
    optimizer_tensors,
    trained_parameters,
)
from dr_lib.training.loop import make_optimizer

SETTINGS = TrainSettings(steps=5, learning_rate=0.1)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.unused = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight


def stepped(updates):
    module = Tied()
    trained = trained_parameters(module)
    optimizer = make_optimizer(trained, SETTINGS)
    for _ in range(updates):
        optimizer.zero_grad()
        module.second(module.first(torch.ones(3))).square().sum().backward()
        optimizer.step()
    return module, trained, optimizer


def test_a_tied_tensor_is_listed_once_and_one_without_gradient_has_no_state():
    _, trained, optimizer = stepped(2)
    assert sorted(trained) == [
        "first.bias",
        "first.weight",
        "second.bias",
        "unused.bias",
        "unused.weight",
    ]
    names = {name.split(".", 1)[1] for name in optimizer_tensors(optimizer, trained)}
    assert names == {"first.bias", "first.weight", "second.bias"}


def test_state_goes_to_its_own_parameter_by_name():
    _, trained, optimizer = stepped(3)
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer, trained).items()}
    _, fresh, other = stepped(0)
    load_optimizer_tensors(other, fresh, saved)
    found = optimizer_tensors(other, fresh)
    assert saved.keys() == found.keys()
    assert all(torch.equal(saved[name], found[name]) for name in saved)
    assert other.state[fresh["first.bias"]]["step"].item() == 3


def test_what_learns_and_what_the_module_keeps_is_kept_of_it():
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).requires_grad_(False)
    module[0].bias.requires_grad_(True)
    module.register_buffer("scratch", torch.zeros(1), persistent=False)
    assert module_tensors(module).keys() == {
        "0.bias",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    }
