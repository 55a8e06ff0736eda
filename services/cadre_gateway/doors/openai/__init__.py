"""The protocols of OpenAI: agents as models, to chat with and to get responses from."""

from cadre_gateway.access.rules import rules_of_path
from cadre_gateway.doors.declaration import Door

DOOR = Door(
    name="openai",
    router="cadre_gateway.doors.openai.door:router",
    about="Agents as models of OpenAI's protocols: /v1/models, /v1/chat/completions, /v1/responses",
    specification="https://platform.openai.com/docs/api-reference",
    # What the body names is held to the caller by the door, which asks for it by id.
    rules=(
        *rules_of_path("/v1/models", "none", get="read"),
        *rules_of_path("/v1/models/{model}", "none", get="read"),
        *rules_of_path("/v1/chat/completions", "handler", post="act"),
        *rules_of_path("/v1/responses", "handler", post="act"),
        *rules_of_path("/v1/responses/{response}", "handler", get="read"),
        *rules_of_path("/v1/responses/{response}", "all", delete="administer"),
        *rules_of_path("/v1/responses/{response}/cancel", "handler", post="act"),
        *rules_of_path("/v1/responses/{response}/input_items", "handler", get="read"),
        *rules_of_path("/v1/conversations", "handler", post="act"),
        *rules_of_path("/v1/conversations/{conversation}", "handler", get="read", post="act", delete="act"),
        *rules_of_path("/v1/conversations/{conversation}/items", "handler", get="read", post="act"),
        *rules_of_path("/v1/conversations/{conversation}/items/{item}", "handler", get="read", delete="act"),
        *rules_of_path("/v1/files", "handler", get="read", post="act"),
        *rules_of_path("/v1/files/{file}", "handler", get="read", delete="act"),
        *rules_of_path("/v1/files/{file}/content", "handler", get="read"),
    ),
    # A turn of a chat may be a person's word on a call.
    actions={
        "POST /v1/chat/completions": "chat.turn",
        "POST /v1/responses": "chat.turn",
        "POST /v1/responses/{response}/cancel": "run.cancel",
        "DELETE /v1/responses/{response}": "run.erase",
        "POST /v1/conversations": "conversation.make",
        "POST /v1/conversations/{conversation}": "conversation.change",
        "DELETE /v1/conversations/{conversation}": "conversation.remove",
        "POST /v1/conversations/{conversation}/items": "conversation.change",
        "DELETE /v1/conversations/{conversation}/items/{item}": "conversation.change",
        "POST /v1/files": "file.write",
        "DELETE /v1/files/{file}": "file.remove",
    },
)
