# The Deep Learning base AMI with the worker image pulled.
packer {
  required_plugins {
    amazon = { source = "github.com/hashicorp/amazon", version = "~> 1.3" }
  }
}

variable "region" { type = string }
variable "image" {
  type        = string
  description = "ACCOUNT.dkr.ecr.REGION.amazonaws.com/worker@sha256:…"
  validation {
    condition     = can(regex("@sha256:[0-9a-f]{64}$", var.image))
    error_message = "The image must be pinned by its digest."
  }
}
variable "instance_profile" {
  type        = string
  description = "A profile that may pull the image."
}

data "amazon-parameterstore" "base" {
  region = var.region
  name   = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
}

source "amazon-ebs" "worker" {
  region               = var.region
  source_ami           = data.amazon-parameterstore.base.value
  instance_type        = "m7i.large" # pulling needs no GPU
  ssh_username         = "ubuntu"
  ssh_interface        = "session_manager"
  iam_instance_profile = var.instance_profile
  ami_name             = "gpu-spot-worker-${formatdate("YYYYMMDDhhmm", timestamp())}"
  encrypt_boot         = true
  imds_support         = "v2.0"
  metadata_options {
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }
}

build {
  sources = ["source.amazon-ebs.worker"]
  provisioner "shell" {
    inline = [
      "aws ecr get-login-password --region ${var.region} | sudo docker login --username AWS --password-stdin ${split("/", var.image)[0]}",
      "sudo docker pull --quiet ${var.image}",
      "sudo docker logout ${split("/", var.image)[0]}",
    ]
  }
}
