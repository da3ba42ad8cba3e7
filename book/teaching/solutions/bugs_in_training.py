# %% one-faulty
def without_test(training, test):
    def words(text):
        # Ids differ between files; what is asked does not.
        return tuple(re.findall(r"\w+", text.lower()))

    known = {words(text) for text in test.values()}
    return {name: text for name, text in training.items() if words(text) not in known}


# %% two-faulty
def hard_negatives(ranking, positives, count):
    # First drop all positives, then cut.
    return [row for row in ranking if row not in positives][:count]


# %% three-faulty
def draw_mask(ids, rate, source):
    real = ids != 0
    # Padding comes last, so it is never drawn.
    lots = torch.rand(ids.shape, generator=source).masked_fill(~real, 2)
    order = lots.argsort(dim=1).argsort(dim=1)
    return order < (rate * real.sum(dim=1, keepdim=True)).round()


# %% four-faulty
def contrastive(queries, passages, temperature):
    # Before the softmax: outside it would only scale the learning rate.
    scores = queries @ passages.T / temperature
    return cross_entropy(scores, torch.arange(len(scores)))


# %% five-faulty
def encode(model, passages, batch):
    before = model.training
    model.eval()  # no_grad saves memory; it does not switch dropout off
    with torch.no_grad():
        found = torch.cat([model(part) for part in passages.split(batch)])
    model.train(before)
    return found
