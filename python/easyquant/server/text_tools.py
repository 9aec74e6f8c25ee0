# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""/tokenize and /detokenize."""

from easyquant.server.asking import Asker, chat_tokens, read_tokens, render
from easyquant.server.errors import ApiError
from easyquant.server.fields import Body, Field, Fields, wrong
from easyquant.server.messages import read_messages
from easyquant.server.sampling import MODEL
from easyquant.server.tokens import token_text
from easyquant.support.errors import is_whole

TOKENIZE: Fields = {
    **MODEL,
    "prompt": Field("a text; this or messages"),
    "messages": Field("a chat, which goes through the model's template"),
    "chat_template_kwargs": Field("variables of the template"),
    "add_generation_prompt": Field("whether the template begins the answer; true by default"),
    "return_token_strs": Field("the tokens as texts, too"),
}
DETOKENIZE: Fields = {**MODEL, "tokens": Field("token ids")}


def tokenize(value, asker: Asker) -> dict:
    body = Body(value, TOKENIZE)
    served = asker.model(body)
    prompt, messages = body.text("prompt"), body.get("messages")
    if (prompt is None) == (messages is None):
        raise ApiError(400, "the body: expected either prompt or messages", "prompt", "missing_required_parameter")
    if messages is None:
        tokens = read_tokens(served, prompt, "prompt")
    else:
        more = {"variables": body.object("chat_template_kwargs"), "add_generation_prompt": body.flag("add_generation_prompt", True)}
        tokens = chat_tokens(served, render(served, "messages", read_messages(messages), **more), "messages")
    found = {"count": len(tokens), "max_model_len": served.reader.context, "tokens": tokens.tolist()}
    if body.flag("return_token_strs"):
        found["token_strs"] = [token_text(served.reader.tokenizer, token) for token in tokens]
    return found


def detokenize(value, asker: Asker) -> dict:
    body = Body(value, DETOKENIZE)
    served, tokens = asker.model(body), body.required("tokens")
    if not isinstance(tokens, list) or not all(is_whole(token) and 0 <= token < served.reader.vocabulary for token in tokens):
        raise wrong("tokens", tokens, f"a list of ids from 0 to {served.reader.vocabulary - 1}")
    return {"prompt": served.reader.tokenizer.decode(tokens, skip_special_tokens=False)}
