# %% exercise-1
def candidates(B, n):
    """Candidates in a row of L_Q, of released L_P, and of the paper's L_P."""
    return B * n, B + B * (n - 1), 1 + B * (n - 1)


# %% exercise-2
def span(alpha):
    """'queries' or 'positives': what a negative's gradient is a sum of."""
    negatives = N[:B].clone().requires_grad_()
    pair_loss(Q[:B], P[:B], negatives, alpha).backward()
    left_over = {}
    for name, anchors in (("queries", Q[:B]), ("positives", P[:B])):
        weights = torch.linalg.lstsq(anchors.T, negatives.grad.T).solution
        left_over[name] = (anchors.T @ weights - negatives.grad.T).norm()
    print({name: round(size.item(), 5) for name, size in left_over.items()})
    return min(left_over, key=left_over.get)
