# %% exercise-1
def careless(rankings, relevant):
    """Share of queries with an answer among their five negatives."""
    hits = []
    for rows, right in zip(rankings, relevant, strict=True):
        hits.append(np.isin(rows[:5], right).any())
    return np.mean(hits)


share = careless(found.rows, relevant)
print(
    f"for {100 * share:.0f} % of the queries: a good ranking has its answers where negatives are taken"
)


# %% exercise-2
def spared(scores, margin, tau=0.02):
    positive, negatives = scores[0], scores[1:]
    kept = negatives[negatives <= positive - margin] if margin else negatives
    return -(torch.cat([positive[None], kept]) / tau).log_softmax(0)[0]


left_out = [
    ((Q[i] @ P[rows].T) > Q[i] @ P[relevant[i][0]] - 0.05).float().mean()
    for i, rows in enumerate(five["mined"])
]
print(f"a margin of 0.05 leaves out {100 * np.mean(left_out):.0f} % of the mined negatives")
