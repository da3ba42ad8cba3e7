# %% exercise-1
def reached(layer):
    layers = bert(input_ids=x_enc, attention_mask=x_seen, output_hidden_states=True).hidden_states
    layers[layer].retain_grad()
    decoded = decode(layers[-1][:, 0], x_dec, x_seen)
    loss_at(decoded, x, x_words).backward()
    gradient = layers[layer].grad[0]  # [positions, 128]
    return (gradient.norm(dim=1) > 0).sum()


# One layer below, attention has read every position: the vector collects the passage there.


# %% exercise-2
def most_in_need(decoder_rates):
    """The decoder's rate at which the vector is worth most."""
    values = [worth(rates=(0.3, rate)) for rate in decoder_rates]
    print([round(value, 3) for value in values])
    return decoder_rates[int(np.argmax(values))]


# The less the decoder sees, the more it needs the vector: hence SimLM's higher rate.
