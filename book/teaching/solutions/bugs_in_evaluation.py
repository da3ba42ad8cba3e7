# %% one-faulty
def reciprocal_rank(hits, cut=10):
    # Arrays count from 0, ranks from 1; argmax of nothing but False is 0 as well.
    places = np.flatnonzero(hits[:cut])
    return 1 / (places[0] + 1) if len(places) else 0.0


# %% two-faulty
def rank_of(scores, own):
    # A fixed rule for ties: by row.
    above = (scores > scores[own]).sum() + (scores[:own] == scores[own]).sum()
    return 1 + int(above)


# %% three-faulty
def mean_reciprocal_rank(run, judged):
    gains = []
    # The judgements say what is averaged over, never the run.
    for query, relevant in judged.items():
        ranks = [rank for rank, passage in enumerate(run.get(query, ()), 1) if passage in relevant]
        gains.append(1 / ranks[0] if ranks else 0.0)
    return float(np.mean(gains))


# %% four-faulty
def neighbour_hits(vectors, documents):
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -np.inf)  # a passage is most like itself
    best = scores.argmax(axis=1)
    return float((documents[best] == documents).mean())


# %% five-faulty
def significant(p_values, level=0.05):
    p_values = np.asarray(p_values)
    order = np.argsort(p_values)
    # Holm: the smallest times m, the next times m - 1, ...
    steps = p_values[order] * np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.maximum.accumulate(steps)
    return corrected < level
