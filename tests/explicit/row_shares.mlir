// Each element as a share of its row's sum, expanded by hand: the row is streamed twice.

!A = tensor<?x?xf32, #diagram.array<[row, x]>>
!Ad = tensor<?x?xf32, #diagram.array<[row, x], level = device>>
!Yd = memref<?x?xf32, #diagram.array<[row, x], level = device>>
!t = tensor<4x32xf32, #diagram.array<[row, x], level = register>>
!m = tensor<4xf32, #diagram.array<[row], level = register>>

func.func @shares(%A: !A) -> !A attributes {sizes = #diagram.sizes<row = 8, x = 64>} {
  %Y = hierarchy.kernel @shares (%Ad = %A : !A as !Ad) saves (%Yd : !Yd) -> (!A)
      schedule #hierarchy.schedule<group = [row = 4], stream = [x = 32], warps = [row = 4]> {
    hierarchy.group [row = 4] {
      %sum = hierarchy.stream [x = 32] -> (!m) initialise {
        %zero = diagram.fill 0.000000e+00 : f32 -> !m
        hierarchy.yield %zero : !m
      } step (%s : !m) {
        %t = hierarchy.load %Ad : !Ad -> !t
        %next = diagram.reduce add %t over [x] into %s : !t -> !m
        hierarchy.yield %next : !m
      } finish (%e : !m) {
        hierarchy.yield %e : !m
      }
      hierarchy.stream [x = 32] initialise {
        hierarchy.yield
      } step {
        %t = hierarchy.load %Ad : !Ad -> !t
        %y = diagram.map (%a = %t : !t, %b = %sum : !m) -> !t {
          %share = arith.divf %a, %b : f32
          diagram.yield %share : f32
        }
        hierarchy.save %y into %Yd : !t, !Yd
        hierarchy.yield
      } finish {
        hierarchy.yield
      }
    }
    hierarchy.yield
  }
  func.return %Y : !A
}
