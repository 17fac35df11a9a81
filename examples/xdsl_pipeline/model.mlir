// Words look at a memory. `net.embed` is the network compiler's own; `net.attend` becomes a kernel of treadle's.
func.func @model(%ids: tensor<?xi32>, %table: tensor<100x64xf16>, %memory: tensor<?x64xf16>) -> tensor<?x64xf16> {
  %x = net.embed %ids from %table : (tensor<?xi32>, tensor<100x64xf16>) -> tensor<?x64xf16>
  %y = net.attend %x, %memory, %memory scale 0.125 : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  func.return %y : tensor<?x64xf16>
}
