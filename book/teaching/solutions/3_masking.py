# %% exercise-1
def hidden(sizes, rate):
    """How many pieces are hidden, on average, of words of these sizes?"""
    budget = max(1, round(rate * sum(sizes)))
    counts = []
    for _ in range(200):
        left = budget
        for size in rng.permutation(sizes):
            if size <= left:
                left -= size
        counts.append(budget - left)
    return np.mean(counts)


# Of [3, 1] always 1: the budget is 2, the long word never fits, the short one always does.


# %% exercise-2
def stop_share(words):
    return np.mean([one in ENGLISH_STOP_WORDS for one in words])


everywhere = stop_share([one for words_ in lists for one in words_])
chosen = [words[i] for i in np.unique(word[masks["importance, 50 %"]])]
print(f"all words {100 * everywhere:.0f} %, hidden ones {100 * stop_share(chosen):.0f} %: {chosen}")
