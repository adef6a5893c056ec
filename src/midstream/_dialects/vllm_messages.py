"""Messages of vLLM's gRPC service.

Source: smg-grpc-proto 0.4.28 ``proto/vllm_engine.proto`` and ``proto/common.proto``;
only the fields that streams of text need.
"""

from __future__ import annotations

from functools import cache

from midstream._dialects.protobuf import Package

SERVICE = "/vllm.grpc.engine.VllmEngine/"
GENERATE = SERVICE + "Generate"
TOKENIZER = SERVICE + "GetTokenizer"

_ENGINE = """
message ChoiceConstraint {
  repeated string choices = 1;
}
message SamplingParams {
  optional float temperature = 1;
  float top_p = 2;
  uint32 top_k = 3;
  float min_p = 4;
  float frequency_penalty = 5;
  float presence_penalty = 6;
  float repetition_penalty = 7;
  optional uint32 max_tokens = 8;
  uint32 min_tokens = 9;
  repeated string stop = 10;
  repeated uint32 stop_token_ids = 11;
  bool skip_special_tokens = 12;
  bool spaces_between_special_tokens = 13;
  bool ignore_eos = 14;
  uint32 n = 15;
  optional int32 logprobs = 22;
  optional int32 prompt_logprobs = 23;
  optional int32 seed = 24;
  bool include_stop_str_in_output = 25;
  map<int32, float> logit_bias = 26;
  optional int32 truncate_prompt_tokens = 27;
  bool grammar_from_first_token = 28;
  oneof constraint {
    string json_schema = 16;
    string regex = 17;
    string grammar = 18;
    string structural_tag = 19;
    bool json_object = 20;
    ChoiceConstraint choice = 21;
  }
}
message TokenizedInput {
  string original_text = 1;
  repeated uint32 input_ids = 2;
}
message GenerateRequest {
  string request_id = 1;
  oneof input {
    TokenizedInput tokenized = 2;
    string text = 3;
  }
  SamplingParams sampling_params = 4;
  bool stream = 5;
  optional int32 data_parallel_rank = 9;
}
message TopLogProbs {
  repeated float values = 1;
  repeated uint32 token_ids = 2;
}
message OutputLogProbs {
  repeated float token_logprobs = 1;
  repeated uint32 token_ids = 2;
  repeated TopLogProbs top_logprobs = 3;
}
message GenerateStreamChunk {
  repeated uint32 token_ids = 1;
  uint32 prompt_tokens = 2;
  uint32 completion_tokens = 3;
  uint32 cached_tokens = 4;
  OutputLogProbs output_logprobs = 5;
  uint32 index = 7;
}
message GenerateComplete {
  repeated uint32 output_ids = 1;
  string finish_reason = 2;
  uint32 prompt_tokens = 3;
  uint32 completion_tokens = 4;
  uint32 cached_tokens = 5;
  OutputLogProbs output_logprobs = 6;
  uint32 index = 8;
  oneof matched_stop {
    uint32 matched_token_id = 10;
    string matched_stop_str = 11;
  }
}
message GenerateResponse {
  oneof response {
    GenerateStreamChunk chunk = 1;
    GenerateComplete complete = 2;
  }
}
"""
_COMMON = """
message GetTokenizerChunk {
  bytes data = 1;
  string sha256 = 2;
}
"""


@cache
def engine() -> Package:
    """The messages of a stream, built once.

    Raises:
        UsageError: protobuf is not installed.
    """
    return Package("vllm.grpc.engine", _ENGINE)


@cache
def common() -> Package:
    """The messages that hand out a tokenizer, built once.

    Raises:
        UsageError: protobuf is not installed.
    """
    return Package("smg.grpc.common", _COMMON)
