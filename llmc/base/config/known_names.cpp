#include "llmc/base/config/known_names.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

inline namespace config {

static constexpr KnownName kNames[] = {
    // run
    {"out_dir output_dir output_log_dir log_dir logdir save_dir checkpoint_dir ckpt_dir run_name "
     "experiment_name -o", "run.dir", nullptr},
    {"random_seed manual_seed", "run.seed", nullptr},
    {"device_type accelerator", "run.device", nullptr},
    {"dtype torch_dtype mixed_precision fp16 bf16 float16 bfloat16 amp half", "run.precision",
     "It is bf16 or fp32; auto takes the one that the machine is fast at"},
    {"num_threads n_threads omp_num_threads", "run.threads", nullptr},
    // model
    {"n_layer n_layers num_layers num_hidden_layers n_blocks num_blocks", "model.layers", nullptr},
    {"n_head n_heads num_heads num_attention_heads nhead", "model.heads", nullptr},
    {"n_embd n_embed d_model hidden_size hidden_dim dim embed_dim emb_dim embedding_dim model_dim width",
     "model.channels", nullptr},
    {"block_size seq_len seq_length sequence_length max_seq_len max_seq_length max_sequence_length "
     "max_length n_ctx ctx_len ctx_size context_length context_size n_positions max_position_embeddings -t",
     "model.context", nullptr},
    {"vocab_size n_vocab padded_vocab_size", "model.vocab", nullptr},
    {"init_from from_pretrained pretrained model_name model_name_or_path pretrained_model_name_or_path "
     "load_checkpoint -e", "model.init",
     "FORMAT:PATH is a model of another program: --help lists the formats"},
    {"n_inner intermediate_size ffn_dim d_ff ffn_hidden_size", "model.ffn_channels", nullptr},
    {"n_kv_head n_kv_heads num_key_value_heads num_query_groups", "model.kv_heads", nullptr},
    {"final_logit_softcapping logit_softcap logits_soft_cap logit_cap", "model.softcap", nullptr},
    {"sliding_window sliding_window_size window_size attention_window", "model.window", nullptr},
    {"rotary_base rope_base rotary_emb_base", "model.rope_theta", nullptr},
    {"qk_layernorm use_qk_norm qk_layer_norm", "model.qk_norm", nullptr},
    {"pos_emb position_embedding position_embedding_type", "model.position", nullptr},
    {"head_dim head_size kv_channels d_head", "model.head_channels", nullptr},
    {"activation_function hidden_act", "model.activation", nullptr},
    {"layer_norm_epsilon layer_norm_eps rms_norm_eps layernorm_epsilon", "model.norm_eps", nullptr},
    {"norm_type normalization", "model.norm", nullptr},
    {"use_bias add_bias_linear", "model.bias", nullptr},
    {"tie_word_embeddings tie_weights tie_embeddings", "model.tied", nullptr},
    {"initializer_range init_std init_method_std", nullptr,
     "Weights start with GPT-2's deviation of 0.02: leave it out"},
    {"dropout attn_pdrop resid_pdrop embd_pdrop hidden_dropout attention_dropout dropout_p drop_rate "
     "hidden_dropout_prob residual_dropout embedding_dropout", nullptr,
     "There is no dropout: leave it out. optimizer.weight_decay regularizes"},
    {"flash flash_attn flash_attention use_flash_attn use_flash_attention attn_implementation", nullptr,
     "Attention never keeps the whole matrix of scores: leave it out"},
    // data
    {"dataset dataset_name data_dir data_path train_data train_file train_files train_data_path input_bin -i",
     "data.train", "It is a glob of token shards, which ./tokenize encode writes"},
    {"val_data val_file val_files valid_data_path validation_file validation_data input_val_bin eval_data -j",
     "data.val", "It is a glob of token shards, which ./tokenize encode writes"},
    {"tokenizer_path tokenizer_name tokenizer_name_or_path tokenizer_file tokenizer_model vocab_file "
     "merge_file merges_file", "data.tokenizer", nullptr},
    {"packing sample_packing pack_sequences bos_align best_fit_packing", "data.rows",
     "documents: a row begins with a document, best fit; stream: text without a gap"},
    {"num_workers dataloader_num_workers num_proc prefetch_factor", nullptr,
     "The loader needs no workers: leave it out"},
    // train
    {"max_iters max_steps num_iterations num_iters train_iters total_steps num_steps n_steps "
     "num_train_steps num_training_steps training_steps train_steps max_train_steps -x", "train.steps",
     nullptr},
    {"epochs num_epochs num_train_epochs max_epochs n_epochs epoch", "train.steps",
     "Steps of n epochs: n x tokens of data.train / train.batch_tokens; the start prints both"},
    {"max_tokens total_tokens train_tokens num_tokens token_budget target_tokens", "train.steps",
     "Steps are tokens / train.batch_tokens"},
    {"batch_size global_batch_size train_batch_size total_batch_size tokens_per_step -d",
     "train.batch_tokens", "It counts the tokens of a step over all ranks: sequences x model.context.\n"
     "       train.micro_batch counts the sequences that a rank computes at once"},
    {"micro_batch_size device_batch_size per_device_train_batch_size per_device_batch_size "
     "train_micro_batch_size_per_gpu mbs -b", "train.micro_batch",
     "It counts the sequences that a rank computes at once; 0: as many as fit"},
    {"gradient_accumulation_steps gradient_accumulation grad_accum_steps grad_accum accumulate_grad_batches "
     "accumulation_steps", nullptr,
     "A step takes train.batch_tokens / (train.micro_batch x model.context x ranks) micro-batches: leave it "
     "out"},
    // optimizer
    {"learning_rate max_lr peak_lr base_lr max_learning_rate peak_learning_rate -l", "optimizer.lr", nullptr},
    {"min_lr lr_min min_learning_rate final_learning_rate learning_rate_decay_frac final_lr_frac "
     "min_lr_ratio end_lr -q", "optimizer.final_lr",
     "It is a fraction of optimizer.lr: min_lr / learning_rate"},
    {"warmup_steps warmup_iters warmup_iterations num_warmup_steps lr_warmup_steps lr_warmup_iters "
     "learning_rate_warmup_iters -u", "optimizer.warmup", nullptr},
    {"warmup_ratio lr_warmup_fraction warmup_fraction warmup_tokens", "optimizer.warmup",
     "It counts steps"},
    {"lr_scheduler lr_scheduler_type lr_schedule lr_decay_style learning_rate_schedule scheduler "
     "scheduler_type decay_lr -k", "optimizer.schedule", nullptr},
    {"lr_decay_iters lr_decay_steps max_lr_steps cooldown_steps warmdown_iters warmdown_steps",
     "optimizer.decay",
     "It counts the last steps of the wsd schedule; the other schedules end at train.steps"},
    {"adam_beta1 adam_b1 b1", "optimizer.beta1", nullptr},
    {"adam_beta2 adam_b2 b2", "optimizer.beta2", nullptr},
    {"betas adam_betas", nullptr, "Set optimizer.beta1 and optimizer.beta2"},
    {"adam_eps adam_epsilon epsilon", "optimizer.eps", nullptr},
    {"wd adam_weight_decay -c", "optimizer.weight_decay", nullptr},
    {"max_grad_norm clip_grad clip_grad_norm grad_norm_clip grad_clip_norm gradient_clip_val "
     "gradient_clipping gradient_clip clip_gradient max_norm", "optimizer.grad_clip", nullptr},
    {"optim optimizer_type optimizer_name", "optimizer.kind", nullptr},
    {"exp_avg_dtype exp_avg_sq_dtype opt_m_dtype opt_v_dtype", "optimizer.state", nullptr},
    {"main_params_dtype master_dtype use_master_weights", "optimizer.master", nullptr},
    // parallel
    {"tp_size tensor_parallel tensor_parallel_size tensor_model_parallel_size", "parallel.tp", nullptr},
    {"pp_size pipeline_parallel pipeline_parallel_size pipeline_model_parallel_size", "parallel.pp", nullptr},
    {"dp_size data_parallel data_parallel_size ddp", "parallel.ranks",
     "All ranks beyond parallel.tp x parallel.pp are data-parallel"},
    {"zero_stage zero_optimization fsdp sharding_strategy deepspeed -z", "parallel.zero",
     "3 shards weights, gradients and optimizer state, as FSDP does"},
    {"sequence_parallel", "parallel.tp", "Sequence parallelism comes with it"},
    {"world_size num_gpus n_gpus gpus devices num_devices nproc_per_node num_processes", "parallel.ranks",
     nullptr},
    {"backend dist_backend distributed_backend", "parallel.transport", nullptr},
    // memory
    {"gradient_checkpointing activation_checkpointing checkpoint_activations recompute_granularity "
     "recompute_activations -r", "memory.recompute", nullptr},
    {"cpu_offload offload_optimizer optimizer_offload offload_param", "memory.offload", nullptr},
    {"compile torch_compile use_compile", nullptr, "There is nothing to compile at run time: leave it out"},
    // eval, sample, checkpoint, log
    {"eval_interval eval_steps eval_every eval_freq evaluation_interval evaluation_strategy eval_strategy "
     "val_interval val_every val_loss_every val_check_interval -v", "eval.every", nullptr},
    {"eval_iters eval_batches max_eval_steps val_iters val_steps val_batches val_max_steps -m",
     "eval.batches", "It counts batches of train.batch_tokens"},
    {"eval_only do_eval", "train.steps", "train.steps=0 evaluates and samples only"},
    {"sample_every sample_interval generate_every -s", "sample.every", nullptr},
    {"max_new_tokens generate_tokens num_generate gen_t -g", "sample.tokens", nullptr},
    {"temp", "sample.temperature", nullptr},
    {"save_interval save_steps save_every save_freq checkpoint_every checkpoint_interval ckpt_interval "
     "ckpt_every always_save_checkpoint -n", "checkpoint.every", nullptr},
    {"save_total_limit max_checkpoints keep_checkpoints num_checkpoints_to_keep -nk", "checkpoint.keep_last",
     nullptr},
    {"resume_from resume_from_checkpoint resume_training auto_resume -y", "checkpoint.resume", nullptr},
    {"log_interval log_every log_steps logging_steps print_every print_interval log_freq", "log.every",
     nullptr},
    {"wandb* use_wandb report_to mlflow* comet*", nullptr,
     "All figures are in run.dir/metrics.jsonl, a JSON object a line; scripts/plot.py draws them"}};

std::span<const KnownName> known_names() { return kNames; }

// Lower case, without hyphens, underscores and spaces; a flag with a single dash keeps the dash.
static std::string joined(const std::string& name) {
    const bool flag = name.size() > 1 && name[0] == '-' && name[1] != '-';
    std::string text = flag ? "-" : "";
    for (const char c : name)
        if (c != '-' && c != '_' && c != ' ') text += char(std::tolower(uint8_t(c)));
    return text;
}

static bool is_among(const std::string& names, const std::string& asked) {
    for (size_t begin = 0; begin < names.size();) {
        const size_t end = std::min(names.find(' ', begin), names.size());
        std::string name = joined(names.substr(begin, end - begin));
        begin = end + 1;
        if (name.back() == '*' ? asked.starts_with(name.substr(0, name.size() - 1)) : asked == name)
            return true;
    }
    return false;
}

const KnownName* known_name(const std::string& path) {
    const std::string asked = joined(path.substr(path.rfind('.') + 1));
    for (const KnownName& row : known_names())
        if (is_among(row.names, asked)) return &row;
    return nullptr;
}

std::string advice(const KnownName& known) {
    std::string text;
    if (known.key) text = std::string(" Did you mean ") + known.key + "?";
    if (known.note) text += std::string("\n       ") + known.note + ".";
    return text;
}

}  // namespace config
