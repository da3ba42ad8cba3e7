# %% exercise-1
def false_alarms(worlds):
    """Worlds without a difference whose 95 % interval excludes zero."""
    wrong = 0
    for _ in range(worlds):
        world = delta * rng.choice([-1, 1], n)
        means = world[draws[:1000]].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        wrong += low > 0 or high < 0
    return wrong


print(f"{false_alarms(200)} of 200; one in twenty, 10 of 200, is what 95 % means")


# %% exercise-2
def standard_error(runs):
    honest = runs.mean(axis=0)
    return honest.std(ddof=1) / np.sqrt(len(honest))
